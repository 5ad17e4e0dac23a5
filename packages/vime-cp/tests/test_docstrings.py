"""Every example in a docstring runs and prints what it says; `torch` is imported for them."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest
import torch

import vime_cp

MODULES = [
    module.name for module in pkgutil.walk_packages(vime_cp.__path__, "vime_cp.") if "__main__" not in module.name
]


@pytest.mark.parametrize("name", MODULES)
def test_examples_of_a_module(name: str) -> None:
    result = doctest.testmod(importlib.import_module(name), optionflags=doctest.ELLIPSIS, extraglobs={"torch": torch})
    assert result.failed == 0


def test_there_are_examples() -> None:
    finder = doctest.DocTestFinder(exclude_empty=True)
    tests = [test for name in MODULES for test in finder.find(importlib.import_module(name)) if test.examples]
    assert len(tests) >= 10
