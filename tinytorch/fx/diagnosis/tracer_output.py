"""What PyTorch's tracers write to stderr, caught: a refusal has its reason in the error."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def caught_output() -> Iterator[io.StringIO]:
    """Catch what torch's loggers print in this block; what the model prints stays where it goes.

    Yields:
        The text, which grows.
    """
    text = io.StringIO()
    named = (log for name, log in logging.root.manager.loggerDict.items() if _is_torchs(name))
    loggers = [log for log in named if isinstance(log, logging.Logger)]
    handlers = {
        handler: handler.stream
        for log in loggers
        for handler in log.handlers
        if type(handler) is logging.StreamHandler  # those for files are subclasses
    }
    for handler in handlers:
        handler.setStream(text)
    try:
        yield text
    finally:
        for handler, stream in handlers.items():
            handler.setStream(stream)


def _is_torchs(name: str) -> bool:
    return name == "torch" or name.startswith("torch.")
