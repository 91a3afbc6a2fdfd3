"""Run programs in one process, with PyTorch or with TinyTorch in its place; print what they print.

    python tests/examples/run_programs.py tinytorch numpy '[["vae.py", "--help"]]'

The result is JSON: a list of {"lines": [...], "error": text or null, "seconds": CPU time}.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
import time
import traceback
from pathlib import Path

EXAMPLES = Path(__file__).parents[2] / "examples"


def run(argv: list[str]) -> dict[str, object]:
    """What one program prints."""
    import runpy

    sys.modules.pop("draws", None)  # its generator starts over in each program
    out = io.StringIO()
    error = None
    start = time.process_time()
    sys.argv = [argv[0], *argv[1:]]
    with contextlib.redirect_stdout(out):
        try:
            runpy.run_path(str(EXAMPLES / argv[0]), run_name="__main__")
        except SystemExit:
            pass
        except BaseException:
            error = traceback.format_exc()
    seconds = time.process_time() - start
    return {"lines": out.getvalue().splitlines(), "error": error, "seconds": seconds}


def main() -> None:
    """Run all and print the result as the last line."""
    library, backend, programs = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
    os.environ["COLUMNS"] = "100"  # argparse wraps its help at the width of the terminal
    sys.path.insert(0, str(EXAMPLES))
    if library == "tinytorch":
        import tinytorch
        import tinytorch.as_torch

        tinytorch.set_backend(backend)
    else:
        import torch

        torch.set_num_threads(1)
    print(json.dumps([run(argv) for argv in programs]))


if __name__ == "__main__":
    main()
