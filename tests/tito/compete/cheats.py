"""Entries that want a score without the work: the body of a method `matmul`, or a whole file.

PORT and SOCKET stand for a TCP port and the name of an abstract Unix socket on which somebody
outside of the sandbox waits; CACHE for the folder of this user's compiled kernels.
"""

from __future__ import annotations

METHOD = """
import numpy as np

class Entry:
    def matmul(self, a, b):
{body}
"""

#: What comes out is not the product: the verdict is "wrong".
WRONG_ANSWERS = {
    "nothing": "return np.zeros((a.shape[0], b.shape[1]), np.float32)",
    "what is there already": "return np.full((a.shape[0], b.shape[1]), np.nan, np.float32)",
    "infinity": "return np.full((a.shape[0], b.shape[1]), np.inf, np.float32)",
    "the answer before": """
        if not hasattr(self, "c"): self.c = a @ b
        return np.resize(self.c, (a.shape[0], b.shape[1]))""",
    "work in the first call only": """
        self.calls = getattr(self, "calls", 0) + 1
        return a @ b if self.calls == 1 else np.zeros((a.shape[0], b.shape[1]), np.float32)""",
    "an answer by address": """
        self.known = getattr(self, "known", {})
        key = (a.ctypes.data, a.shape, b.shape)
        if key not in self.known: self.known[key] = a @ b
        c = self.known[key]
        self.known = {k[:1] + (k[1], k[2]): c for k in self.known}
        return self.known[key] if len(self.known) > 9 else np.resize(c, c.shape) * 1.0001""",
    "half precision": "return (a.astype(np.float16) @ b.astype(np.float16)).astype(np.float32)",
    "truncated mantissas": """
        cut = lambda x: (np.ascontiguousarray(x).view(np.uint32) & 0xFFFF0000).view(np.float32)
        return cut(a) @ cut(b)""",
    "whole numbers for all": "return np.rint(a) @ np.rint(b)",
    "fewer terms": "return np.ascontiguousarray(a[:, :-4]) @ np.ascontiguousarray(b[:-4])",
    "low rank": """
        q, _ = np.linalg.qr(a[:, :150].astype(np.float64))
        return (q @ (q.T @ a @ b)).astype(np.float32)""",
    "only whole blocks": """
        c = np.zeros((a.shape[0], b.shape[1]), np.float32)
        m, n = (a.shape[0] - 1) // 16 * 16, (b.shape[1] - 1) // 16 * 16
        c[:m, :n] = a[:m] @ b[:, :n]
        return c""",
    "small elements left out": """
        c = a @ b
        c[np.abs(c) < 1e-4 * np.abs(c).max()] = 0
        return c""",
    "memory in one order": """
        flat = lambda x: x.ravel("K").reshape(x.shape)
        return flat(a) @ flat(b)""",
    "one element for all": "return np.broadcast_to(a[:1] @ b, (a.shape[0], b.shape[1]))",
    "an array that is equal to everything": """
        class Equal(np.ndarray):
            def __eq__(self, other): return np.ones(self.shape, bool)
            def __sub__(self, other): return np.zeros(self.shape)
            __rsub__ = __sub__
        return np.zeros((a.shape[0], b.shape[1]), np.float32).view(Equal)""",
    "a thread that finishes later": """
        import threading, time
        c = np.zeros((a.shape[0], b.shape[1]), np.float32)
        def later():
            time.sleep(0.002); c[...] = a @ b
        threading.Thread(target=later, daemon=True).start()
        return c""",
    "a thread that writes after the acknowledgement": """
        import sys, threading, time
        outputs = sys._getframe(2).f_locals["outputs"]
        def later():
            time.sleep(0.05); outputs[0][...] = a @ b
        threading.Thread(target=later, daemon=True).start()
        return np.zeros((a.shape[0], b.shape[1]), np.float32)""",
    "a destructor that computes": """
        class Late(np.ndarray):
            def __del__(self): self[...] = 1
        return np.zeros((a.shape[0], b.shape[1]), np.float32).view(Late)""",
    "the output as its own answer": """
        import sys
        return sys._getframe(2).f_locals["outputs"][0]""",
    "its inputs made easy": """
        a[...] = 0
        return a @ b""",
    "the answer of the checker": """
        import gc
        for x in gc.get_objects():
            if isinstance(x, dict) and "expected" in x: return x["expected"]
        return np.zeros((a.shape[0], b.shape[1]), np.float32)""",
    "the rest of the shared memory": """
        import sys
        memory = sys._getframe(2).f_locals["arena"].memory
        found = np.frombuffer(memory, np.float32, a.shape[0] * b.shape[1], len(memory) // 2)
        return found.reshape(a.shape[0], b.shape[1]).copy()""",
    "a checker of its own": """
        import tinytorch.bench.accuracy, tito.compete.match
        tinytorch.bench.accuracy.difference = tito.compete.match.difference = lambda *_: None
        return np.zeros((a.shape[0], b.shape[1]), np.float32)""",
    "holes in the shared memory": """
        import ctypes, sys
        memory = sys._getframe(2).f_locals["arena"].memory
        fd = next(fd for fd in range(3, 40) if _is_memory(fd))
        ctypes.CDLL(None).fallocate(fd, 3, ctypes.c_long(0), ctypes.c_long(len(memory)))
        return a @ b

def _is_memory(fd):
    import os
    try: return "memfd" in os.readlink(f"/proc/self/fd/{fd}")
    except OSError: return False""",
}  # fmt: skip

#: What breaks the protocol or asks for what the sandbox does not have: no result.
PROTOCOL = {
    "saying that it is done, early": """
        import os
        for fd in range(3, 12):
            try: os.write(fd, b"d")
            except OSError: pass
        return a @ b""",
    "a flood": """
        import os
        for fd in range(3, 12):
            try: os.write(fd, b"d" * 4096)
            except OSError: pass
        return a @ b""",
    "a flood from a thread": """
        import os, threading
        def flood(fd):
            try:
                while True: os.write(fd, b"pd" * 512)
            except OSError: pass
        for fd in range(3, 12): threading.Thread(target=flood, args=(fd,), daemon=True).start()
        return a @ b""",
    "acknowledgements in advance": """
import os
import numpy as np

class Entry:
    def __init__(self):
        for fd in range(3, 12):
            try: os.write(fd, b"pdpdpdpd")
            except OSError: pass
    def matmul(self, a, b):
        return a @ b""",
    "reading what comes next": """
        import os, select
        for fd in range(3, 12):
            try: os.read(fd, 1)
            except OSError: pass
        return a @ b""",
    "a forged error": """
        import os
        for fd in range(3, 12):
            try: os.write(fd, b"e{]}\\n")
            except OSError: pass
        os._exit(0)""",
    "a forged fault of the machine": """
        import os, json
        said = json.dumps({"error": "infrastructure", "text": "noisy"}).encode()
        for fd in range(3, 12):
            try: os.write(fd, b"e" + said + b"\\n")
            except OSError: pass
        os._exit(0)""",
    "a helper process": """
        import os
        if os.fork() == 0: os._exit(0)
        return a @ b""",
    "a helper process past Python": """
        import ctypes
        c = ctypes.CDLL(None, use_errno=True)
        pid = c.fork()
        if pid == 0: c._exit(0)
        if pid < 0: raise OSError(ctypes.get_errno(), "no fork")
        return a @ b""",
    "a pool of processes": """
        import multiprocessing
        with multiprocessing.get_context("fork").Pool(2) as pool: pool.map(abs, [1])
        return a @ b""",
    "another program": """
        import subprocess
        subprocess.run(["true"], check=True)
        return a @ b""",
    "becoming another program": """
        import os
        os.execv("/usr/bin/env", ["env"])""",
    "the parent's memory": """
        import os
        open(f"/proc/{os.getppid()}/mem", "rb").read(1)
        return a @ b""",
    "the parent's files": """
        import os
        os.listdir(f"/proc/{os.getppid()}/fd")
        return a @ b""",
    "the parent's memory by a system call": """
        import ctypes, os
        class Piece(ctypes.Structure): _fields_ = [("at", ctypes.c_void_p), ("n", ctypes.c_size_t)]
        mine = ctypes.create_string_buffer(8)
        here, there = Piece(ctypes.addressof(mine), 8), Piece(0x400000, 8)
        c = ctypes.CDLL(None, use_errno=True)
        read = c.process_vm_readv(os.getppid(), ctypes.byref(here), 1, ctypes.byref(there), 1, 0)
        if read < 0: raise OSError(ctypes.get_errno(), "not read")
        return a @ b""",
    "tracing the parent": """
        import ctypes, os
        c = ctypes.CDLL(None, use_errno=True)
        if c.ptrace(16, os.getppid(), None, None): raise OSError(ctypes.get_errno(), "no trace")
        return a @ b""",
    "the network": """
        import socket
        socket.create_connection(("127.0.0.1", PORT), timeout=1)
        return a @ b""",
    "a socket without a name in the file system": """
        import socket
        socket.socket(socket.AF_UNIX).connect("\\0SOCKET")
        return a @ b""",
    "an answer kept on disk": """
        import os
        open(os.path.join(os.path.dirname(np.__file__), "kept"), "w")
        return a @ b""",
    "a kernel in this user's cache": """
        open("CACHE/poison", "w")
        return a @ b""",
    "all the memory": "return np.ones(1 << 32)",
    "its limits taken off": """
        import resource
        resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        return a @ b""",
    "other cores than its own": """
        import os
        os.sched_setaffinity(0, range(os.cpu_count()))
        return a @ b""",
    "files without end": """
        import itertools
        for i in itertools.count():
            open(f"{('/tmp', '/dev/shm', '/home/student')[i % 3]}/{i}", "w").close()""",
    "before all others": """
        import os
        os.nice(-5)
        return a @ b""",
    "less shared memory than was agreed": """
        import os
        for fd in range(3, 40):
            try:
                if "memfd" in os.readlink(f"/proc/self/fd/{fd}"): os.ftruncate(fd, 0)
            except FileNotFoundError: pass
        return a @ b""",
    "a loop without end": "while True: pass",
    "stopping itself": """
        import os, signal
        os.kill(os.getpid(), signal.SIGSTOP)
        return a @ b""",
    "leaving": """
        import os
        os._exit(0)""",
    "an error with a terminal's commands": 'raise ValueError("\\x1b[2J" + "x" * 100_000)',
    "another dtype": "return a.astype(np.float64) @ b",
    "another shape": "return (a @ b)[:-1]",
}  # fmt: skip

#: What never answers.
HANGING = {"reading what comes next", "a loop without end", "stopping itself"}

#: Right, and no faster for their trick than NumPy; or found out, depending on the kernel.
NO_GAIN = {
    "a clock that stands still": """
        import time
        time.perf_counter = time.monotonic = time.process_time = lambda: 0.0
        time.clock_gettime = time.clock_gettime_ns = lambda _: 0
        return np.matmul(a, b)""",
    "an array that computes when it is asked": """
        class Lazy:
            def __array__(self, dtype=None, copy=None): return np.matmul(a, b)
        return Lazy()""",
    "answers by content": """
        self.known = getattr(self, "known", {})
        key = hash(a.tobytes())
        if key not in self.known: self.known[key] = np.matmul(a, b)
        return self.known[key]""",
    "answers kept from launch to launch": """
        import hashlib, os
        path = "/tmp/" + hashlib.sha256(a.tobytes() + b.tobytes()).hexdigest() + ".npy"
        if not os.path.exists(path): np.save(path, np.matmul(a, b))
        return np.load(path)""",
    "poisoned caches of kernels": """
        import os
        for folder in (np.__path__[0] + "/__pycache__", "/tmp/numba", "/home/student/.cache"):
            try:
                os.makedirs(folder, exist_ok=True); open(folder + "/poison.nbc", "wb").write(b"x")
            except OSError: pass
        return np.matmul(a, b)""",
    "work in a thread": """
        import threading
        found = []
        thread = threading.Thread(target=lambda: found.append(np.matmul(a, b)))
        thread.start(); thread.join()
        return found[0]""",
    "work on every core": """
        import os, threading
        os.sched_setaffinity(0, range(os.cpu_count()))
        c, m = np.empty((a.shape[0], b.shape[1]), np.float32), a.shape[0] // 2
        half = threading.Thread(target=lambda: np.matmul(a[:m], b, out=c[:m]))
        half.start(); np.matmul(a[m:], b, out=c[m:]); half.join()
        return c""",
    "a watcher that computes when inputs come": """
        import sys, threading
        place = sys._getframe(2).f_locals["inputs"]
        if not hasattr(self, "watcher"):
            self.place, self.done = place, None
            def watch():
                while True:
                    x, y = self.place
                    key = float(x[0, 0]), x.shape, y.shape
                    self.done = key, np.matmul(x, y)
            self.watcher = threading.Thread(target=watch, daemon=True)
            self.watcher.start()
        self.place, done = place, self.done
        if done and done[0] == (float(a[0, 0]), a.shape, b.shape): return done[1]
        return np.matmul(a, b)""",
    "threads that keep the others from working": """
        import threading
        if not hasattr(self, "idle"):
            self.idle = threading.Event()
            def spin():
                junk = np.ones(1 << 20)
                while self.idle.wait(): junk += 1
            for _ in range(2): threading.Thread(target=spin, daemon=True).start()
        self.idle.clear()
        c = np.matmul(a, b)
        self.idle.set()
        return c""",
    "a timer that wakes it, while the others are measured": """
        import ctypes, signal, threading
        signal.signal(signal.SIGCONT, lambda *_: None)  # or it would be ignored
        event = (ctypes.c_int * 16)(0, 0, 18, 0)  # a union, SIGCONT, SIGEV_SIGNAL
        every = (ctypes.c_long * 4)(0, 1_000_000, 0, 1_000_000)
        timer = ctypes.c_void_p()
        c = ctypes.CDLL(None)
        if not hasattr(self, "watcher"):
            c.timer_create(1, ctypes.byref(event), ctypes.byref(timer))
            c.timer_settime(timer, 0, ctypes.byref(every), None)
            def watch():
                while True: np.ones((64, 64)) @ np.ones((64, 64))
            self.watcher = threading.Thread(target=watch, daemon=True)
            self.watcher.start()
        return np.matmul(a, b)""",
    "stopping the parent": """
        import os, signal
        for number in (signal.SIGSTOP, signal.SIGKILL):
            try: os.kill(os.getppid(), number)
            except OSError: pass
        return np.matmul(a, b)""",
    "noise on its output": """
        import os
        print("done " * 1000)
        os.write(2, b"done " * 1000)
        return np.matmul(a, b)""",
    "slow first calls": """
        import time
        self.calls = getattr(self, "calls", 0) + 1
        if self.calls <= 2: time.sleep(0.2)
        return np.matmul(a, b)""",
    "its own commands, until the pipe is full": """
        import os, stat
        for n in range(3, 32):
            try:
                if stat.S_ISFIFO(os.fstat(n).st_mode):
                    pipe = os.open(f"/proc/self/fd/{n}", os.O_RDWR | os.O_NONBLOCK)
                    while os.write(pipe, b"g" * 4096): pass
            except OSError: pass
        return np.matmul(a, b)""",
    "what a process may ask of its system": """
        import ctypes, fcntl, json, os, sys
        memory = json.loads(sys.argv[1])["memory"]
        call = ctypes.CDLL(None).syscall
        attempts = (
            lambda: fcntl.fcntl(memory, 1033, 0x1F),  # F_ADD_SEALS: nobody may write there
            lambda: os.nice(-20),
            lambda: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(50)),
            lambda: os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0)),
            lambda: call(323, 0),  # userfaultfd: faults of its memory are its own
            lambda: call(425, 64, ctypes.create_string_buffer(256)),  # io_uring_setup
            lambda: call(298, ctypes.create_string_buffer(128), 0, -1, -1, 0),  # perf_event_open
        )
        for attempt in attempts:
            try: attempt()
            except OSError: pass
        return np.matmul(a, b)""",
    "noise where it goes badly": """
        import time
        began = time.thread_time()
        c = np.matmul(a, b)
        rate = (time.thread_time() - began) / (a.size * b.shape[1])
        self.best = min(getattr(self, "best", rate), rate)
        while rate > 1.05 * self.best and time.thread_time() - began < 0.01: pass
        return c""",
    "outputs that are never freed": """
        self.kept = getattr(self, "kept", [])
        self.kept.append(np.matmul(a, b))
        return self.kept[-1]""",
    "NumPy made slow for all": """
        import time
        own = getattr(np.matmul, "own", np.matmul)
        def slow(*x): time.sleep(0.1); return own(*x)
        slow.own = own
        np.matmul = np.dot = slow
        return own(a, b)""",
}  # fmt: skip

COUNT = len(WRONG_ANSWERS) + len(PROTOCOL) + len(NO_GAIN)
