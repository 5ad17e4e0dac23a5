"""Imports without collections leave the collector as it was."""

from __future__ import annotations

import gc

import pytest

from vime_train._imports import uncollected


@pytest.mark.parametrize("collecting", [True, False])
def test_the_collector_is_as_before_also_after_an_import_that_failed(collecting: bool) -> None:
    if not collecting:
        gc.disable()
    try:
        with uncollected():
            assert not gc.isenabled()
        assert gc.isenabled() == collecting
        with pytest.raises(ModuleNotFoundError), uncollected():
            __import__("a_module_that_is_not_there")
        assert gc.isenabled() == collecting
    finally:
        gc.enable()
        gc.unfreeze()


def test_what_was_there_is_passed_over_afterwards() -> None:
    before = gc.get_freeze_count()
    try:
        with uncollected():
            pass
        assert gc.get_freeze_count() > before
    finally:
        gc.unfreeze()
