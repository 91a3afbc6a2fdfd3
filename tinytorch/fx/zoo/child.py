"""One model in a process of its own: every stage under a time limit, results as they come."""

from __future__ import annotations

import contextlib
import gc
import os
import resource
import signal
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import torch

from tinytorch.fx.zoo.catalogue import build
from tinytorch.fx.zoo.stages import PEERS, STAGES
from tinytorch.fx.zoo.subject import SEED, Subject, seed
from tinytorch.fx.zoo.verdict import TIMEOUT, Verdict, of_error, of_peer

OVER = "the time of the model was over before"
Send = Callable[[str, Any], None]


@dataclass(frozen=True)
class Limits:
    """The limits of a model: parameters, memory, seconds.

    Seconds are of CPU time, so that a verdict does not depend on what else the machine does.

    Attributes:
        stage_seconds: for one stage.
        model_seconds: for all of them.
        memory_bytes: of its process.
    """

    stage_seconds: float = 60.0
    model_seconds: float = 300.0
    memory_bytes: int = 6 * 2**30


class StageTimeoutError(BaseException):
    """The time of a stage is over. No Exception, so that nothing under test catches it."""


@contextlib.contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise `StageTimeoutError` in the block when its CPU time is over. In the main thread."""

    def stop(*_: Any) -> None:
        raise StageTimeoutError

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, max(seconds, 1e-3))  # 0 would be no limit
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def examine(name: str, stages: Sequence[str], limits: Limits, send: Send) -> None:
    """Build a model and put it through stages; `send` gets what is found, stage by stage.

    First "model" with what it is, or "skipped" with why it is left out. A stage that takes too long
    is the last one: it was stopped anywhere, and may have left PyTorch in any state.
    """
    warnings.simplefilter("ignore")  # of the models and of PyTorch's own parts
    torch.set_num_threads(1)
    seed(SEED)
    try:
        with time_limit(limits.stage_seconds):
            subject = Subject(name, *build(name))
    except StageTimeoutError:
        send("skipped", f"takes longer than {limits.stage_seconds:g} s to build and run eagerly")
        return
    except Exception as error:
        send("skipped", str(error)[:300])
        return
    send("model", {
        "class": type(subject.model).__name__,
        "parameters": sum(p.numel() for p in subject.model.parameters()),
        "inputs": {k: list(v.shape) for k, v in subject.inputs.items()},
    })  # fmt: skip
    start = time.process_time()
    for stage in stages:
        left = limits.model_seconds - (time.process_time() - start)
        verdict = run_stage(subject, stage, min(limits.stage_seconds, left))
        send(stage, verdict.to_dict())
        if verdict.verdict == TIMEOUT:
            return
        gc.collect()


def run_stage(subject: Subject, stage: str, seconds: float) -> Verdict:
    """One stage; whatever is raised becomes a verdict."""
    if seconds <= 0:
        return Verdict(TIMEOUT, OVER)
    start = time.process_time()
    try:
        with time_limit(seconds):
            verdict = STAGES[stage](subject)
    except StageTimeoutError:
        verdict = Verdict(TIMEOUT, f"longer than {seconds:.0f} s")
    except Exception as error:
        verdict = (of_peer if stage in PEERS else of_error)(error)
    finally:
        subject.reset()
    verdict.seconds = time.process_time() - start
    return verdict


def main(name: str, stages: Sequence[str], limits: Limits, pipe: Connection) -> None:
    """Run the process; it ends with a "done"."""
    resource.setrlimit(resource.RLIMIT_DATA, (limits.memory_bytes, limits.memory_bytes))
    silent = os.open(os.devnull, os.O_WRONLY)
    for descriptor in (1, 2):  # of loggers too, which keep the streams they began with
        os.dup2(silent, descriptor)
    examine(name, stages, limits, lambda key, value: pipe.send((key, value)))
    pipe.send(("done", None))
