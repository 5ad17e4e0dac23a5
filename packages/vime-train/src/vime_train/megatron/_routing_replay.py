"""Routing replay: every step of an iteration sends a token through the experts that its scoring pass chose.

The ratio of a step compares the policy with the one that scored the tokens before the first step. Where a router has
changed its mind since, a token's log-prob jumps with its experts, and ratios far from 1 are of the router's making
(arXiv:2507.18071, section 5.3). Always true: entries are made and read in the order of micro-batches, which is the
plan's in both passes; without recording, and in models beside the policy, routers choose as they do.
"""

from __future__ import annotations

from collections import deque
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal

import torch
from megatron.core.transformer.moe.moe_layer import MoELayer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from jaxtyping import Float, Int
    from torch import Tensor

    from vime_train.megatron._model import ModelChunks


class RoutingReplay:
    """What one router chose, micro-batch by micro-batch; Megatron asks it for the experts of every token."""

    def __init__(self) -> None:
        self.action: Literal["choose", "record", "replay"] = "choose"
        self.chosen: deque[Int[Tensor, "tokens topk"]] = deque()

    def get_replay_topk(
        self,
        scores: Float[Tensor, "tokens experts"],
        topk: int,
        num_groups: int | None,
        group_topk: int | None,
        choose: Callable[..., tuple[Tensor, Tensor]],
    ) -> tuple[Float[Tensor, "tokens topk"], Int[Tensor, "tokens topk"]]:
        """Scores and numbers of the experts of every token; the name and the arguments are Megatron's."""
        if self.action == "replay":
            experts = self.chosen.popleft().long()
            return scores.gather(1, experts), experts
        found, experts = choose(scores, topk, num_groups=num_groups, group_topk=group_topk)
        if self.action == "record":
            self.chosen.append(experts.to(torch.int16))
        return found, experts


@contextmanager
def recorded_routing(chunks: ModelChunks, *, on: bool) -> Iterator[None]:
    """Forget what was chosen before, and note what is chosen in the block."""
    for replay in _routers(chunks):
        replay.chosen.clear()
    with _acting(chunks, "record" if on else "choose"):
        yield


@contextmanager
def replayed_routing(chunks: ModelChunks, *, on: bool) -> Iterator[None]:
    """Route the micro-batches of the block as the next ones that were noted."""
    with _acting(chunks, "replay" if on else "choose"):
        yield


@contextmanager
def _acting(chunks: ModelChunks, action: Literal["choose", "record", "replay"]) -> Iterator[None]:
    for replay in _routers(chunks):
        replay.action = action
    try:
        yield
    finally:
        for replay in _routers(chunks):
            replay.action = "choose"


def _routers(chunks: ModelChunks) -> Iterator[RoutingReplay]:
    for chunk in chunks.bare:
        for layer in chunk.decoder.layers:
            if isinstance(layer.mlp, MoELayer):
                yield layer.mlp.router.router_replay
