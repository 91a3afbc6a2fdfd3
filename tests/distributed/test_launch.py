"""Starting ranks, and what is said when one of them ends early."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import tinytorch
from tests.distributed.programs import endings
from tinytorch.distributed import (
    ProcessGroupError,
    all_reduce,
    get_rank,
    get_world_size,
    init_process_group,
    launch,
)


def test_without_a_group_a_process_is_alone_and_collectives_say_so() -> None:
    assert (get_rank(), get_world_size()) == (0, 1)
    with pytest.raises(ProcessGroupError, match="call init_process_group"):
        all_reduce(tinytorch.ones(1))


def test_a_backend_is_no_timeout() -> None:
    with pytest.raises(TypeError, match=r"takes seconds, not .nccl.; the backend is gloo"):
        init_process_group("nccl")  # type: ignore[arg-type]


def test_what_the_environment_lacks_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE", "MASTER_PORT", "SLURM_PROCID", "SLURM_NTASKS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    with pytest.raises(ProcessGroupError, match="RANK, WORLD_SIZE, MASTER_PORT: start the program"):
        init_process_group()
    with pytest.raises(ValueError, match="at least 1, got 0"):
        launch(endings.fails_on_rank_1, 0)


@pytest.mark.slow
def test_the_error_of_a_rank_comes_first_with_its_traceback() -> None:
    with pytest.raises(ProcessGroupError) as caught:
        launch(endings.fails_on_rank_1, 2)
    first = str(caught.value).split("\nrank ")[1]
    assert first.startswith("1: Traceback")
    assert "a mistake of rank 1" in first


@pytest.mark.slow
def test_a_message_of_another_shape_is_not_received() -> None:
    with pytest.raises(ProcessGroupError) as caught:
        launch(endings.receives_another_shape, 2, timeout=3.0)
    assert "rank 1 of 2: recv of float32[8] from rank 0 failed" in str(caught.value)


@pytest.mark.slow
def test_a_killed_rank_is_named_by_all_others_long_before_the_timeout() -> None:
    with pytest.raises(ProcessGroupError) as caught:
        launch(endings.says_who_was_killed, 3)
    text = str(caught.value)
    assert "rank 2: was killed by SIGKILL" in text
    told = re.findall(r"RuntimeError: after ([\d.]+) s: rank (\d) of 3: .*: rank 2 has gone", text)
    assert {rank for _, rank in told} == {"0", "1"}, text
    assert all(float(seconds) < 100 for seconds, _ in told)  # of 300


@pytest.mark.slow
def test_a_rank_that_left_is_named_by_those_in_a_backward() -> None:
    for text, seconds in launch(endings.says_who_has_left, 3)[:2]:
        assert "backward of data_parallel" in text
        assert "rank 2 has gone" in text
        assert seconds < 9


@pytest.mark.slow
def test_a_run_whose_rank_was_killed_goes_on_to_the_same_bits(tmp_path: Path) -> None:
    whole = launch(endings.resumable, 2, str(tmp_path / "whole"), 8)
    path = str(tmp_path / "killed")
    with pytest.raises(ProcessGroupError, match="SIGKILL"):
        launch(endings.resumable, 2, path, 8, 5)
    resumed = launch(endings.resumable, 2, path, 8)
    assert set(resumed) == set(whole)
    (alone,) = launch(endings.resumable, 1, str(tmp_path / "alone"), 8)
    np.testing.assert_allclose(
        np.frombuffer(whole[0], np.float32), np.frombuffer(alone, np.float32), atol=1e-5
    )
