"""What the twelfth module's parts do inside the package."""

import json
import tempfile
from pathlib import Path

import tinytorch
from tinytorch import bench, nn
from tinytorch.backends import find_backend
from tito.checks import check, close, equal, raises


def test_functions_are_timed_side_by_side() -> None:
    """two functions of different length are timed in rounds, and their ratio is right"""
    calls: list[str] = []

    def work(name: str, count: int) -> object:
        calls.append(name)
        return sum(range(count))

    pair = {"short": lambda: work("short", 2_000), "long": lambda: work("long", 40_000)}
    timings = bench.time_callables(pair, rounds=7, sample_seconds=0.0, warmup=1)
    each_round = ["short", "short", "long", "long"]
    equal(calls, ["short", "long", "short", "long", *each_round * 7])
    times = bench.ratio(timings["long"], timings["short"])
    check(4 < times < 100, f"20 times the work takes {times:.1f} times as long")
    equal((len(timings["short"].samples), timings["long"].clock), (7, "cpu"))
    check(timings["long"].iqr >= 0.0, "a range is not negative")
    raises(ValueError, bench.ratio, timings["long"], bench.time_callable(lambda: None, rounds=3))


def test_ops_are_counted_with_their_work() -> None:
    """a step's ops are counted by phase, with the FLOPs and bytes that follow from the shapes"""
    w = tinytorch.ones(8, 3, requires_grad=True)
    x = tinytorch.ones(4, 8)
    with bench.OpCounter() as counter:
        (x @ w).sum().backward()
    forward = counter.stats["forward", "matmul"]
    equal((forward.calls, forward.flops, forward.bytes), (1, 192, 4 * (32 + 24 + 12)))
    check(counter.stats["backward", "matmul"].flops >= 192, "the backward has a product too")
    close(counter.total.seconds, sum(s.seconds for s in counter.stats.values()))


def test_memory_is_followed() -> None:
    """what a block holds at one time is known, with views and what has died"""
    x = tinytorch.ones(1000)
    with tinytorch.benchmark() as block:
        y = x + 1.0
        z = y.reshape(10, 100)
        y = None
        z = z * 2.0
    equal((block.peak_bytes, block.current_bytes), (8000, 4000))
    equal(z.shape, (10, 100))


def test_a_machine_has_a_roof() -> None:
    """the peak and the bandwidth of this machine bound what an op can reach"""
    machine = bench.measure_machine(find_backend("numpy"))
    ridge = machine.flops / machine.bandwidth
    close(machine.attainable(ridge / 2) / machine.flops, 0.5)
    close(machine.attainable(ridge * 2), machine.flops)
    close(machine.seconds(int(machine.flops), 0), 1.0, rtol=1e-3)
    machine = bench.Machine(flops=100.0, bandwidth=10.0)
    equal((machine.seconds(100, 50), machine.attainable(2.0)), (5.0, 20.0))


def test_a_step_can_be_drawn() -> None:
    """the trace of a training step is a file that a browser can draw"""
    tinytorch.manual_seed(2)
    net = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8, 2))
    with bench.Profiler() as profile:
        net(tinytorch.ones(2, 1, 4, 4)).sum().backward()
    check(0.0 <= profile.between_ops <= profile.seconds, "the rest is part of the whole")
    path = Path(tempfile.mkdtemp()) / "step.json"
    profile.save_chrome_trace(path)
    events = json.loads(path.read_text())["traceEvents"]
    equal(len(events), profile.total.calls)
    check(
        {"conv2d", "conv2d_weight"} <= {event["name"] for event in events}, "convolutions are there"
    )
    check({"forward", "backward"} == {event["cat"] for event in events}, "both phases are there")
