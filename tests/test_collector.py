"""The collector is as it was afterwards."""

from __future__ import annotations

import gc

import pytest

from tinytorch.collector import collected_no_more, collector_paused


def test_it_comes_back_after_an_error():
    assert gc.isenabled()
    with pytest.raises(ValueError, match="wrong"), collector_paused():
        assert not gc.isenabled()
        with collector_paused():
            pass
        assert not gc.isenabled()
        raise ValueError("wrong")
    assert gc.isenabled()


def test_who_has_turned_it_off_finds_it_off():
    gc.disable()
    try:
        with collector_paused():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


@pytest.mark.slow
def test_what_is_imported_inside_is_not_looked_through_again():
    was_frozen = gc.get_freeze_count() > 0  # all that the tests share, by conftest.py
    try:
        with collected_no_more():
            made = [[]]
        assert gc.get_freeze_count() > 0
        assert not any(made is known for known in gc.get_objects())
        assert gc.isenabled()
    finally:
        gc.unfreeze()
        if was_frozen:
            gc.collect()
            gc.freeze()
