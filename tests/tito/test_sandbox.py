"""What code can do inside the sandbox, tried from the inside."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.system_tools import needs_sandbox
from tito import sandbox, scripts
from tito.limits import Limits
from tito.sandbox import NoSandboxError, Sandbox, for_python
from tito.usage import usage

LIMITS = Limits(
    seconds=60,
    cpu_seconds=600,
    memory_bytes=1 << 30,
    file_bytes=8 << 20,
    open_files=64,
    processes=24,
)


def inside(code: str, **options: Any) -> Any:
    """Run Python code in the sandbox; the value that it prints as JSON."""
    box = for_python("tinytorch", "tito", scratch_bytes=4 << 20)
    child = box.start([sys.executable, "-I", "-c", code], LIMITS, **options)
    out, _ = child.communicate(timeout=600)
    return json.loads(out)


@needs_sandbox
def test_an_ordinary_user_alone_with_a_read_only_system() -> None:
    found = inside(
        """
import json, os, tinytorch
told = {"user": os.getuid(), "root": sorted(os.listdir("/")), "environment": sorted(os.environ)}
told["processes"] = [p for p in os.listdir("/proc") if p.isdigit()]
told["package"] = os.access(tinytorch.__file__, os.W_OK)
told["written"] = []
for folder in ("/", "/dev", "/home", "/etc", "/usr", "/dev/shm", "/tmp", os.getcwd()):
    try:
        open(os.path.join(folder, "x"), "w").close()
        told["written"].append(folder)
    except OSError:
        pass
print(json.dumps(told))
"""
    )
    assert found["user"] != 0
    assert found["written"] == ["/dev/shm", "/tmp", sandbox.HOME]
    assert found["package"] is False
    assert len(found["processes"]) <= 3
    assert set(found["environment"]) <= {*sandbox.ENVIRONMENT, "PWD", "LC_CTYPE"}


@needs_sandbox
def test_what_the_grader_knows_is_not_to_be_read_from_process_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DATABASE_PASSWORD", "secret-of-the-grader")
    found = inside(
        """
import glob, json, os
told = {"hidden": os.listdir("/proc/1"), "environments": "", "refused": []}
for path in glob.glob("/proc/[0-9]*/environ"):
    told["environments"] += open(path, errors="replace").read()
for path in ("/proc/1/environ", "/proc/1/mem", "/proc/1/root", "/proc/1/task/1/environ"):
    try:
        open(path, "r+b")
    except OSError as error:
        told["refused"].append(error.errno)
print(json.dumps(told))
"""
    )
    assert found["hidden"] == [] and found["refused"] == [2, 2, 2, 2]
    assert "secret" not in found["environments"]


@needs_sandbox
def test_bubblewrap_itself_has_an_empty_environment_and_limits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DATABASE_PASSWORD", "secret-of-the-grader")
    code = "import time\nprint('up', flush=True)\ntime.sleep(600)"
    child = for_python("tinytorch").start([sys.executable, "-I", "-c", code], LIMITS)
    try:
        assert child.stdout is not None and child.stdout.readline() == b"up\n"
        (first,) = Path(f"/proc/{child.pid}/task/{child.pid}/children").read_text().split()
        for pid in (child.pid, int(first)):
            process = Path(f"/proc/{pid}")
            assert b"secret" not in (process / "environ").read_bytes()
            assert f"{LIMITS.memory_bytes}" in (process / "limits").read_text()
    finally:
        child.kill()
        child.communicate()


@needs_sandbox
def test_a_package_below_the_temporary_folder_is_seen(tmp_path: Path) -> None:
    package = tmp_path / "below" / "mine"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("NUMBER = 17")
    place = Path("/tmp") / f"tinytorch-{os.getpid()}"
    try:
        shutil.copytree(tmp_path / "below", place)
        place.chmod(0o755)
        box = Sandbox(visible=(place,))
        code = (
            f"import sys; sys.path.insert(0, {str(place)!r})\n"
            "import mine, tempfile\n"
            "tempfile.TemporaryFile().write(b'x')\n"
            "print(mine.NUMBER)"
        )
        child = box.start([sys.executable, "-I", "-c", code], LIMITS)
        assert child.communicate(timeout=600)[0] == b"17\n"
    finally:
        shutil.rmtree(place, ignore_errors=True)


@needs_sandbox
def test_the_repository_shows_its_packages_and_nothing_else() -> None:
    code = f"import json, os; print(json.dumps(os.listdir({str(scripts.ROOT)!r})))"
    seen = set(inside(code))
    assert {"tinytorch", "tito"} <= seen
    assert not seen & {"modules", "tests", ".git", "pyproject.toml"}


@needs_sandbox
def test_no_network_no_new_namespaces_no_memory_outside_processes() -> None:
    found = inside(
        """
import ctypes, json, os, socket
told = {}
def tell(name, function):
    try:
        told[name] = str(function())
    except OSError as error:
        told[name] = error.errno
tell("network", lambda: socket.create_connection(("192.0.2.1", 80), 5))
tell("memfd", lambda: os.memfd_create("x"))
tell("vsock", lambda: socket.socket(40, socket.SOCK_STREAM))
libc = ctypes.CDLL(None, use_errno=True)
libc.unshare(0x10000000)
told["unshare"] = ctypes.get_errno()
libc.shmget(0, 1 << 20, 0o1600)
told["shmget"] = ctypes.get_errno()
print(json.dumps(told))
"""
    )
    assert found == {"network": 101, "memfd": 1, "vsock": 97, "unshare": 1, "shmget": 1}


@needs_sandbox
def test_processes_files_and_memory_have_an_end() -> None:
    found = inside(
        """
import json, os, sys, time
told = {"children": 0}
try:
    while True:
        if os.fork() == 0:
            time.sleep(60)
            os._exit(0)
        told["children"] += 1
except OSError as error:
    told["fork"] = error.errno
try:
    with open("/tmp/large", "wb") as file:
        while True:
            file.write(bytes(1 << 20))
except OSError as error:
    told["file"] = error.errno
told["size"] = os.path.getsize("/tmp/large")
try:
    bytearray(2 << 30)
except MemoryError:
    told["memory"] = True
print(json.dumps(told), flush=True)
os._exit(0)
"""
    )
    assert 10 <= found["children"] < 24
    assert (found["fork"], found["file"], found["memory"]) == (11, 28, True)
    assert found["size"] <= 4 << 20


@needs_sandbox
def test_files_lie_in_the_home_and_are_read_only(tmp_path: Path) -> None:
    path = tmp_path / "data.txt"
    path.write_text("1 2 3", encoding="utf-8")
    code = (
        "import json, os\n"
        "print(json.dumps([open('data.txt').read(), os.access('data.txt', os.W_OK)]))"
    )
    assert inside(code, files={"data.txt": path}) == ["1 2 3", False]


@needs_sandbox
def test_nothing_is_left_when_the_outermost_process_is_killed() -> None:
    code = "import os, time\nos.fork()\nprint('up', flush=True)\ntime.sleep(600)"
    child = for_python("tinytorch").start([sys.executable, "-I", "-c", code], LIMITS)
    assert child.stdout is not None and child.stdin is not None
    assert child.stdout.readline() == b"up\n"
    tree = usage(child.pid)
    assert tree.processes >= 3
    assert tree.memory_bytes > 4 << 20
    child.kill()
    child.wait()
    assert child.stdout.read() in (b"", b"up\n")  # comes to an end: nobody holds the pipe
    child.stdout.close()
    child.stdin.close()
    assert usage(child.pid).processes == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
@needs_sandbox
def test_an_ordinary_user_has_a_sandbox_as_well() -> None:
    python = "/usr/bin/python3"
    script = """
import json, sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from tito import sandbox
from tito.limits import Limits
box = sandbox.Sandbox()
inside = '''
import os, json
count = 0
try:
    while True:
        if os.fork() == 0:
            import time; time.sleep(60); os._exit(0)
        count += 1
except OSError:
    pass
told = [count, os.getuid(), os.access("/usr", os.W_OK), os.path.exists("/root")]
told.append([os.path.exists("/proc/1/" + name) for name in ("environ", "mem")])
print(json.dumps(told), flush=True)
os._exit(0)
'''
if sandbox.unavailable():
    sys.exit(sandbox.unavailable())
child = box.start([sys.executable, "-I", "-c", inside], Limits(seconds=20, processes=20))
out, _ = child.communicate(timeout=600)
print(json.dumps([box.level, json.loads(out)]))
"""
    as_nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    if not shutil.which("setpriv") or not Path(python).exists():
        pytest.skip("needs setpriv and a Python that everyone can run")
    command = [*as_nobody, python, "-I", "-c", script, str(scripts.ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, cwd="/", timeout=600)
    if done.returncode and ("bubblewrap does not run" in done.stderr or "tito" in done.stderr):
        pytest.skip(done.stderr.strip().splitlines()[-1])
    level, (count, user, may_write, sees_root, of_bubblewrap) = json.loads(done.stdout)
    assert "user namespace" in level
    assert 5 <= count < 20
    assert (user, may_write, sees_root) == (1000, False, False)
    assert of_bubblewrap == [False, False]


def test_no_sandbox_is_said_and_not_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    sandbox.unavailable.cache_clear()
    monkeypatch.setenv("PATH", "/nowhere")
    try:
        with pytest.raises(NoSandboxError, match="bwrap, which is not installed: apt-get install"):
            Sandbox().start(["true"], LIMITS)
    finally:
        monkeypatch.undo()
        sandbox.unavailable.cache_clear()


def test_without_confinement_the_level_says_so_and_limits_hold(tmp_path: Path) -> None:
    box = Sandbox(confined=False)
    assert box.level.startswith("none")
    code = "import os, resource; print(os.getcwd(), resource.getrlimit(resource.RLIMIT_NOFILE)[0])"
    child = box.start([sys.executable, "-c", code], LIMITS, cwd=tmp_path)
    out, _ = child.communicate(timeout=600)
    assert out.decode().split() == [str(tmp_path), "64"]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="elsewhere nothing tells it")
def test_without_confinement_nothing_is_left_either_when_we_are_killed() -> None:
    """A worker of the competition is stopped most of the time, and stayed so for ever."""
    code = (
        "import os, signal, sys\nfrom tito.limits import Limits\nfrom tito.sandbox import Sandbox\n"
        "child = Sandbox(confined=False).start(['sleep', '600'], Limits(seconds=600))\n"
        "while open(f'/proc/{child.pid}/comm').read() != 'sleep\\n': pass\n"
        "os.kill(child.pid, signal.SIGSTOP)\nprint(child.pid, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    killed = subprocess.run([sys.executable, "-c", code], cwd=scripts.ROOT, capture_output=True)
    pid = int(killed.stdout)
    for _ in range(100):
        try:
            if "State:\tZ" in Path(f"/proc/{pid}/status").read_text():
                return
        except OSError:
            return
        time.sleep(0.05)
    os.kill(pid, 9)
    pytest.fail("a stopped process is left")


def test_usage_adds_up_what_a_process_has_started() -> None:
    code = (
        "import os, time\n"
        "os.fork()\n"
        "block = b'x' * (64 << 20)\n"
        "end = time.process_time() + 0.1\n"
        "while time.process_time() < end: pass\n"
        "os.write(1, b'.')\n"
        "time.sleep(60)"
    )
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert child.stdout is not None
    try:
        assert child.stdout.read(2) == b".."
        found = usage(child.pid)
        assert found.processes == 2
        assert found.memory_bytes > 2 * (64 << 20)
        assert found.cpu_seconds >= 0.15
    finally:
        for pid in Path(f"/proc/{child.pid}/task/{child.pid}/children").read_text().split():
            os.kill(int(pid), 9)
        child.kill()
        child.wait()
        child.stdout.close()
    for _ in range(100):
        if usage(child.pid).processes == 0:
            return
        time.sleep(0.05)
    pytest.fail("a process that is gone is still counted")
