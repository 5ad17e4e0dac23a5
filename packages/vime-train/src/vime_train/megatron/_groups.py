"""Where this process stands in the layout, and the process groups around it.

Always true: DP, CP, TP and PP coordinates of the ranks enumerate the layout, TP fastest, then CP, DP and PP, as
Megatron-core orders them; the PP group's last rank is the only stage that computes a loss. Expert groups are runs of
`ep` ranks of one stage; the first of them holds the replica that an export reads.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist
from megatron.core import parallel_state

if TYPE_CHECKING:
    from vime_train.config import LayoutSection


@dataclass(frozen=True, slots=True, kw_only=True)
class Groups:
    """This rank's coordinates and its process groups; `tp`, `cp` ... are groups, `tp_rank` ... ranks within them."""

    rank: int
    layout: LayoutSection
    device: torch.device
    tp_rank: int
    cp_rank: int
    dp_rank: int
    pp_rank: int
    ep_rank: int
    tp: dist.ProcessGroup
    cp: dist.ProcessGroup
    dp: dist.ProcessGroup
    pp: dist.ProcessGroup
    dp_cp: dist.ProcessGroup
    ep: dist.ProcessGroup

    @property
    def is_last_stage(self) -> bool:
        """Whether this rank computes losses."""
        return self.pp_rank == self.layout.pp - 1

    @property
    def is_export_replica(self) -> bool:
        """Whether this rank's weights are the ones that an export reads: those of DP rank 0, CP rank 0."""
        return self.dp_rank == 0 and self.cp_rank == 0

    @property
    def is_expert_replica(self) -> bool:
        """Whether this rank's experts are the ones that an export reads."""
        layout = self.layout
        place = self.tp_rank + layout.tp * (self.cp_rank + layout.cp * self.dp_rank)
        return place < layout.ep


def start_groups(
    layout: LayoutSection, *, rank: int, world_size: int, init_method: str, timeout_seconds: float
) -> Groups:
    """Join the job: NCCL where torch sees a GPU, gloo elsewhere.

    Raises:
        ValueError: the world is not the layout's size, the rank is not in it, or `ep` does not divide a stage.
    """
    if world_size != layout.world_size:
        raise ValueError(
            f"start_groups: world_size is {world_size} but layout dp={layout.dp} cp={layout.cp} tp={layout.tp} "
            f"pp={layout.pp} needs {layout.world_size} ranks: start one trainer process per rank of the layout"
        )
    if not 0 <= rank < world_size:
        raise ValueError(
            f"start_groups: rank is {rank} but a world of {world_size} has ranks 0 to {world_size - 1}: give each "
            "process its own"
        )
    stage = layout.dp * layout.cp * layout.tp
    if stage % layout.ep:
        raise ValueError(
            f"start_groups: layout.ep is {layout.ep} but a stage has dp * cp * tp = {stage} ranks: choose a divisor of "
            f"{stage}"
        )
    device = _device(rank)
    dist.init_process_group(
        "nccl" if device.type == "cuda" else "gloo",
        init_method=init_method,
        rank=rank,
        world_size=world_size,
        timeout=timedelta(seconds=timeout_seconds),
    )
    parallel_state.initialize_model_parallel(
        tensor_model_parallel_size=layout.tp,
        pipeline_model_parallel_size=layout.pp,
        virtual_pipeline_model_parallel_size=layout.vpp if layout.vpp > 1 else None,
        context_parallel_size=layout.cp,
        expert_model_parallel_size=layout.ep,
        expert_tensor_parallel_size=1,
        create_gloo_process_groups=False,
    )
    return Groups(
        rank=rank,
        layout=layout,
        device=device,
        tp_rank=parallel_state.get_tensor_model_parallel_rank(),
        cp_rank=parallel_state.get_context_parallel_rank(),
        dp_rank=parallel_state.get_data_parallel_rank(),
        pp_rank=parallel_state.get_pipeline_model_parallel_rank(),
        ep_rank=parallel_state.get_expert_model_parallel_rank(),
        tp=parallel_state.get_tensor_model_parallel_group(),
        cp=parallel_state.get_context_parallel_group(),
        dp=parallel_state.get_data_parallel_group(),
        pp=parallel_state.get_pipeline_model_parallel_group(),
        dp_cp=parallel_state.get_data_parallel_group(with_context_parallel=True),
        ep=parallel_state.get_expert_model_parallel_group(),
    )


def stop_groups() -> None:
    """Leave the job; a later `start_groups` in the same process is fine."""
    parallel_state.destroy_model_parallel()
    dist.destroy_process_group()


def _device(rank: int) -> torch.device:
    if not torch.cuda.is_available():
        return torch.device("cpu")
    device = torch.device("cuda", rank % torch.cuda.device_count())
    torch.cuda.set_device(device)
    return device
