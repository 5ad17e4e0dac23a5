"""Which batch goes to which rank."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from vime_train.cluster._trainers import dp_coordinate
from vime_train.config import LayoutSection

sizes = st.integers(1, 4)


@given(tp=sizes, cp=sizes, dp=sizes, pp=sizes)
def test_every_rank_of_a_replica_has_its_dp_coordinate(tp: int, cp: int, dp: int, pp: int) -> None:
    """Oracle: enumerate the ranks as Megatron's default order does, TP fastest, then CP, DP and PP."""
    layout = LayoutSection(tp=tp, cp=cp, dp=dp, pp=pp)
    expected = [d for _ in range(pp) for d in range(dp) for _ in range(cp) for _ in range(tp)]
    assert [dp_coordinate(rank, layout) for rank in range(layout.world_size)] == expected
