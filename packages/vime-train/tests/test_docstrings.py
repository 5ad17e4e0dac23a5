"""Every example in a docstring runs and says what it says."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

import vime_train

MODULES = sorted(module.name for module in pkgutil.walk_packages(vime_train.__path__, "vime_train."))


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_of_a_module_run(name: str) -> None:
    module = importlib.import_module(name)
    found = doctest.testmod(module, optionflags=doctest.ELLIPSIS | doctest.IGNORE_EXCEPTION_DETAIL)
    assert found.failed == 0


def test_there_are_examples() -> None:
    finder = doctest.DocTestFinder()
    examples = sum(len(one.examples) for name in MODULES for one in finder.find(importlib.import_module(name)))
    assert examples >= 20
