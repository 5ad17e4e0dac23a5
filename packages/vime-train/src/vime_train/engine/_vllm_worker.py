"""What a vLLM worker does for an engine beyond its own calls. Imports vLLM when it is called, in the worker.

vLLM's CPU build packs the weights of experts for its kernel when it starts, and copies new ones over them as they are
(0.32.0, `UnquantizedFusedMoEMethod._setup_kernel`: it packs only while there is no kernel). Without the method below
the answers after a weight sync would be noise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import nn

EXTENSION = f"{__name__}.ExpertPacking"
"""What to give vLLM as `worker_extension_cls`."""


class ExpertPacking:
    """Methods that vLLM adds to its worker, called by name."""

    def forget_packed_experts(self) -> None:
        """Let the next reload set up the kernels of experts from the start, and so pack their weights."""
        from vllm.model_executor.layers.fused_moe.fused_moe_method_base import FusedMoEMethodBase

        model: nn.Module = self.get_model()  # type: ignore[attr-defined]  # the worker's
        for module in model.modules():
            if isinstance(module, FusedMoEMethodBase):
                module.moe_kernel = None
