"""A user's order of the buffer: which of the finished groups that wait are trained on first.

Always true: the groups are the same ones, each once; an order that leaves one out or makes one up is an error.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from vime_train.plugins import CONTRACTS, calling, load
from vime_train.rollout._check import RolloutError

if TYPE_CHECKING:
    from vime_train.config import RolloutSection
    from vime_train.rollout._buffer import Group, Order


def load_order(section: RolloutSection) -> Order:
    """The order of `rollout.buffer_order`, or first in, first out.

    Raises:
        PluginError: if the import path leads nowhere or the signature does not fit.
    """
    if section.buffer_order is None:
        return list
    function = load(section.buffer_order, CONTRACTS["rollout.buffer_order"])
    name = f"rollout.buffer_order = {section.buffer_order!r}"

    def order(groups: Sequence[Group]) -> list[Group]:
        by_id = {group[0].group_id: group for group in groups}
        with calling(name, lambda: f"the finished groups {list(by_id)[:5]}", RolloutError):
            ids = [int(group_id) for group_id in function(tuple(groups))]
        if Counter(ids) != Counter(by_id.keys()):
            raise RolloutError(
                f"{name} returned the group ids {ids[:5]}; given the finished groups {list(by_id)[:5]}: each of their "
                "ids is needed, once, those to train on first at the front."
            )
        return [by_id[group_id] for group_id in ids]

    return order
