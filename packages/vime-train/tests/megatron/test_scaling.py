"""What Megatron is told of a micro-batch: counts of tokens for its auxiliary losses, and J unchanged (C8)."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from vime_train.config import LayoutSection
from vime_train.megatron._objectives import Scaling


def scaling(step_num_tokens: int | None) -> Scaling:
    groups = SimpleNamespace(layout=LayoutSection(dp=2, cp=2))
    return Scaling(groups=groups, num_microbatches=3, step_num_tokens=step_num_tokens)  # type: ignore[arg-type]


def micro_batch(local_length: int) -> object:
    return SimpleNamespace(packed=SimpleNamespace(local_length=local_length))


def test_with_a_loss_per_token_megatron_is_told_the_places_and_divides_them_out_again() -> None:
    loss, count, _ = scaling(1000).triple(torch.tensor(0.25), micro_batch(70), {})  # type: ignore[arg-type]
    assert int(count) == 70
    assert float(loss) / 1000 == pytest.approx(0.25)


def test_without_it_every_micro_batch_counts_once() -> None:
    loss, count, _ = scaling(None).triple(torch.tensor(0.25), micro_batch(70), {})  # type: ignore[arg-type]
    assert int(count) == 1
    assert float(loss) == 0.25 * 3 * 4
