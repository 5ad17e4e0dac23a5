"""Every native field of Megatron that a configuration may set, set: trainers start and a step is what it was.

Whatever breaks, or changes the model behind the configuration's back, belongs into `config/_native_refused.py`.
"""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from vime_train.config import RunConfig, native_problems
from vime_train.config._native import DATA_PARALLEL, OPTIMIZER, TRANSFORMER
from vime_train.config._vendor_fields import VendorClass, fields

CHANGES_A_STEP = {"megatron.bf16", "optimizer.adam_eps"}
"""Fields that are there to change the numbers."""
LAYOUTS = [{"dp": 2}, {"cp": 2}, {"tp": 2, "pp": 2}, {"pp": 2, "vpp": 2}]


def vendor_classes() -> Iterator[tuple[str, tuple[VendorClass, ...], type]]:
    import_module("vime_train.megatron")  # imports Megatron as a process without CUDA must
    for section, vendors, path in (
        ("megatron", TRANSFORMER, "megatron.core.transformer:TransformerConfig"),
        ("megatron", DATA_PARALLEL, "megatron.core.distributed:DistributedDataParallelConfig"),
        ("optimizer", OPTIMIZER, "megatron.core.optimizer:OptimizerConfig"),
    ):
        module, _, name = path.partition(":")
        yield section, vendors, vars(import_module(module))[name]


def other_values(annotation: str, default: object) -> list[object]:
    """Values of the type; none where a configuration file has no such value."""
    literals = [node for node in ast.walk(ast.parse(annotation)) if isinstance(node, ast.Constant)]
    if "Literal[" in annotation:
        return [node.value for node in literals if node.value not in (default, None)]
    if "bool" in annotation:
        return [True, False]  # the default is Megatron's, which need not be ours
    if "int" in annotation:
        return [2, 7]
    return [0.5] if "float" in annotation else []


def settings() -> dict[tuple[str, str], list[object]]:
    """By section and field, the values that the launch check lets through on a CPU."""
    found: dict[tuple[str, str], list[object]] = {}
    own = type(RunConfig().optimizer).model_fields
    for section, vendors, kind in vendor_classes():
        defaults = {field.name: field.default for field in dataclasses.fields(kind)}
        for vendor in vendors:
            for name, annotation in fields(vendor).items():
                for value in other_values(annotation, defaults[name]):
                    if name not in own and not native_problems(RunConfig.model_validate({section: {name: value}})):
                        found.setdefault((section, name), []).append(value)
    return found


def in_sections(chosen: Mapping[tuple[str, str], object]) -> dict[str, dict[str, object]]:
    sections: dict[str, dict[str, object]] = {}
    for (section, name), value in chosen.items():
        sections.setdefault(section, {})[name] = value
    return sections


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_every_field_that_may_be_set_starts_and_changes_nothing_else(
    layout: dict[str, int],
    start: Callable[..., Any],
    run_config: Callable[..., RunConfig],
    plan_batches: Callable[..., Any],
    read_weights: Callable[[Path], dict[str, np.ndarray]],
    tmp_path: Path,
) -> None:
    """All fields together, with their first values, then with their second ones; one by one to name the guilty."""

    def step(chosen: Mapping[tuple[str, str], object]) -> tuple[float, dict[str, np.ndarray]]:
        config = run_config(layout, **in_sections(chosen))
        job = start(config)
        (report,) = job.train(plan_batches(config))
        job.call("export", str(tmp_path / "out"))
        return report["grad_norm"], read_weights(tmp_path / "out")

    def wrong(chosen: Mapping[tuple[str, str], object]) -> str:
        try:
            norm, weights = step(chosen)
        except Exception as error:
            return f"{chosen}: {error}"
        moved = max(float(np.abs(weights[key] - expected[key]).max()) for key in expected)
        same = moved < 3e-5 and norm == pytest.approx(expected_norm, rel=1e-5)
        return "" if same else f"{chosen}: weights differ by {moved:.1e}, the norm is {norm / expected_norm:.3f} times"

    expected_norm, expected = step({})  # a first step of Adam moves every weight by the rate, 3e-4
    tried = {key: values for key, values in settings().items() if ".".join(key) not in CHANGES_A_STEP}
    assert len(tried) > 10
    for place in (0, 1):
        together = {key: values[place % len(values)] for key, values in tried.items()}
        if wrong(together):
            guilty = [text for key, value in together.items() if (text := wrong({key: value}))]
            raise AssertionError("\n".join(guilty) or wrong(together))
