"""What the processes have in common in which `tito graph` and `tito fx` run the user's file."""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Callable
from typing import Any

from tinytorch.errors import TinyTorchError

USER_ERROR = 1


class RequestError(Exception):
    """Something in the user's request or file that has to be changed; said without a traceback."""


def answer(command: Callable[[], Any], *expected: type[Exception]) -> int:
    """Run a command and print what it returns as JSON, if anything; returns the exit code.

    Args:
        expected: errors that, like ours, are said in their own sentence.
    """
    try:
        result = command()
    except (RequestError, TinyTorchError, KeyError, *expected) as error:
        print(f"error: {error.args[0]}", file=sys.stderr)
        return USER_ERROR
    except Exception:  # of the user's own code: they want to see where
        traceback.print_exc()
        return USER_ERROR
    if result is not None:
        print(json.dumps(result, indent=2))
    return 0
