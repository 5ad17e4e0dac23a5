"""Every example in a docstring runs; those of `vime_metrics.torch` run in the tests that have torch."""

from __future__ import annotations

import doctest
from importlib import import_module
from pkgutil import walk_packages

import pytest

import vime_metrics

NAMES = [
    module.name
    for module in walk_packages(vime_metrics.__path__, "vime_metrics.")
    if not module.name.startswith("vime_metrics.torch")
]


@pytest.mark.parametrize("name", NAMES)
def test_examples_run(name):
    assert doctest.testmod(import_module(name)).failed == 0


def test_there_are_examples():
    assert sum(doctest.testmod(import_module(name)).attempted for name in NAMES) > 40
    assert vime_metrics.__all__ == sorted(vime_metrics.__all__)


@pytest.mark.parametrize("name", [name for name in vime_metrics.__all__ if not name.endswith(("Error", "Warning"))])
def test_public_names_say_what_they_are(name):
    assert (getattr(vime_metrics, name).__doc__ or "").strip()
