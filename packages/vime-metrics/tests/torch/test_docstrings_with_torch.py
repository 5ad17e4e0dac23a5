"""Every example in a docstring of `vime_metrics.torch` runs."""

from __future__ import annotations

import doctest
from importlib import import_module
from pkgutil import walk_packages

import pytest

import vime_metrics.torch

NAMES = [module.name for module in walk_packages(vime_metrics.torch.__path__, "vime_metrics.torch.")]


@pytest.mark.parametrize("name", NAMES)
def test_examples_run(name):
    assert doctest.testmod(import_module(name)).failed == 0


def test_there_are_examples():
    assert sum(doctest.testmod(import_module(name)).attempted for name in NAMES) >= 4
