"""Beats end before the interpreter goes away."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import os, socket
with socket.create_server(("127.0.0.1", 0)) as free:
    port = str(free.getsockname()[1])
os.environ |= {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
import tinytorch
from tinytorch.distributed import data_parallel, heartbeat, init_process_group
heartbeat.INTERVAL = 0.0  # always within the store
init_process_group()
model = tinytorch.nn.Linear(3, 2)
data_parallel(model)
model(tinytorch.ones(4, 3)).sum().backward()
"""


def test_a_program_may_end_within_its_group() -> None:
    """A beat at that moment ended it by abort(), after all of its work was done."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
