"""Fields of Megatron and vLLM that exist and fit by type, and still must not be set here: each with its reason.

Always true: every other field of Megatron's dataclasses starts trainers and leaves a step what it was, unless it is
there to change it (a test goes through all of them); what nothing in a run would read is refused like what would break.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vime_train.config._run_config import RunConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Names or patterns of fields, and why they cannot be set; `on_cpu` where a GPU would change that."""

    keys: tuple[str, ...]
    reason: str
    on_cpu: bool = False

    def covers(self, key: str) -> bool:
        """Whether the field is one of these."""
        return any(fnmatchcase(key, pattern) for pattern in self.keys)


def _split(names: str) -> tuple[str, ...]:
    return tuple(names.split())


_MEGATRON = (
    Refusal(
        keys=_split(
            "normalization qk_layernorm qk_l2_norm add_bias_linear add_qkv_bias gated_linear_unit glu_linear_offset "
            "activation_func_clamp_value use_fused_weighted_squared_relu layernorm_zero_centered_gamma rotary_* "
            "mrope_* softmax_* window_* no_rope_freq attention_output_gate apply_residual_connection_post_layernorm "
            "apply_query_key_layer_scaling multi_latent_attention experimental_attention_variant dsa_* linear_* "
            "is_hybrid_model mamba_* use_mamba_mem_eff_path heterogeneous_block_specs hetereogenous_dist_checkpoint"
        ),
        reason="the model computes what its config.json says, as the engines do; remove it",
    ),
    Refusal(
        keys=_split("num_moe_experts moe_* expert_* overlap_moe_* delay_wgrad_compute ep_overlap_*"),
        reason="experts are those of config.json, spread by layout.ep, and train.router_aux_loss_coefficient is their "
        "only other loss; remove it",
    ),
    Refusal(keys=_split("mtp_*"), reason="models have no heads for several tokens; remove it"),
    Refusal(
        keys=_split("hidden_dropout attention_dropout"),
        reason="with dropout it is another network than the engines sample from, and ratios would be wrong; remove it",
    ),
    Refusal(
        keys=_split("perform_initialization use_cpu_initialization init_* embedding_init_*"),
        reason="every weight is loaded, none is initialised; remove it",
    ),
    Refusal(
        keys=_split("fp16 enable_autocast"),
        reason="fp16 needs a loss scale, which nothing here computes; use megatron.bf16 = true",
    ),
    Refusal(
        keys=_split(
            "pipeline_model_parallel_layout num_layers_in_*_pipeline_stage account_for_* variable_seq_lengths "
            "batch_p2p_* overlap_p2p_* use_ring_exchange_p2p defer_embedding_wgrad_compute "
            "wgrad_deferral_limit deallocate_pipeline_outputs"
        ),
        reason="stages are equal, and how they exchange activations of packed samples follows from [layout]; remove it",
    ),
    Refusal(
        keys=_split("hierarchical_context_parallel_sizes hybrid_context_parallel max_seqlen_per_dp_cp_rank"),
        reason="samples are cut as layout.cp and the plan say; remove it",
    ),
    Refusal(
        keys=_split(
            "use_distributed_optimizer num_distributed_optimizer_instances use_megatron_fsdp use_custom_fsdp fsdp_* "
            "*_sharding_strategy suggested_communication_unit_size preserve_fp32_weights keep_fp8_transpose_cache "
            "disable_symmetric_registration fp8_param_gather reuse_grad_buf_for_mxfp8_param_ag average_in_collective"
        ),
        reason="the distributed optimizer is always used, and checkpoints hold its shards; remove it",
    ),
    Refusal(
        keys=_split("overlap_grad_reduce overlap_param_gather align_param_gather"),
        reason="gradients are reduced once, after the last micro-batch of a step, and weights gathered at its end; "
        "remove it",
    ),
    Refusal(
        keys=_split("check_for_nan_in_grad check_for_large_grads"),
        reason="a step whose gradients are not finite is skipped, counted and named (train.max_skipped_steps), and "
        "this would end the run at the first; remove it",
    ),
    Refusal(
        keys=_split("cross_entropy_* clone_scatter_output_in_embedding qk_clip* log_max_attention_logit"),
        reason="losses and optimizer steps are computed by vime-train, which does not read it; remove it",
    ),
    Refusal(
        keys=_split(
            "inference_* use_inference_optimized_layers flash_decode mlp_chunks_for_prefill batch_invariant_mode"
        ),
        reason="answers come from vLLM; see [vllm]",
    ),
    Refusal(
        keys=_split("transformer_impl test_mode quant_recipe"),
        reason="Transformer Engine's layers are taken where they fit, Megatron's local ones elsewhere; remove it",
    ),
    Refusal(
        keys=_split("tp_comm_* async_tensor_model_parallel_allreduce nccl_ub"),
        reason="it needs buffers that only Megatron's own training script sets up; remove it",
    ),
    Refusal(
        keys=_split(
            "fp8* fp4* first_last_layers_bf16 num_layers_at_* tp_only_amax_red use_kitchen* kitchen_* recompute_* "
            "distribute_saved_activations num_microbatches_with_partial_activation_checkpoints cpu_offloading* "
            "fine_grained_activation_offloading offload_modules min_offloaded_tensor_size cuda_graph* *_cuda_graph "
            "sequence_parallel persist_layer_norm memory_efficient_layer_norm apply_rope_fusion fused_single_qkv_rope "
            "gradient_accumulation_fusion use_te_* activation_func_fp8_input_store disable_parameter_transpose_cache "
            "symmetric_ar_type cp_comm_type pipeline_model_parallel_comm_backend attention_softmax_in_fp32 "
            "disable_bf16_reduced_precision_matmul"
        ),
        reason="it needs a GPU (most of these, with Transformer Engine); remove it, or set cluster.gpus_per_process",
        on_cpu=True,
    ),
)
_OPTIMIZER = (
    Refusal(
        keys=_split("optimizer sgd_* muon_*"),
        reason="Megatron's distributed optimizer, which is always used, is Adam; remove it",
    ),
    Refusal(
        keys=_split("decoupled_lr decoupled_min_lr"),
        reason="every parameter follows optimizer.lr and optimizer.schedule; remove it",
    ),
    Refusal(
        keys=_split("fp16 loss_scale initial_loss_scale min_loss_scale loss_scale_window hysteresis"),
        reason="losses are not scaled; use megatron.bf16 = true for half precision",
    ),
    Refusal(keys=_split("bf16"), reason="this is decided by megatron.bf16; set it there"),
    Refusal(
        keys=_split("use_distributed_optimizer overlap_param_gather* reuse_grad_buf_for_mxfp8_param_ag fp8_recipe"),
        reason="the distributed optimizer is always used, and weights are gathered at the end of a step; remove it",
    ),
    Refusal(
        keys=_split(
            "use_precision_aware_optimizer store_param_remainders optimizer_cpu_offload optimizer_offload_fraction "
            "use_torch_optimizer_for_cpu_offload overlap_cpu_optimizer_* pin_cpu_*"
        ),
        reason="checkpoints keep Adam's state in fp32, whole and on the trainer's device; remove it",
    ),
    Refusal(
        keys=_split("log_num_zeros_in_grad barrier_with_L1_time"),
        reason="steps are reported by vime-train, which does not read it; remove it",
    ),
)
_VLLM = (
    Refusal(
        keys=_split("logprobs_mode logits_processors"),
        reason="the trainers compare the engines' log-probs with their own, which are those of the whole distribution; "
        "remove it",
    ),
    Refusal(
        keys=_split(
            "return_sampling_mask enable_return_routed_experts enable_prompt_embeds enable_trace_replay reasoning_* "
            "structured_outputs_config aux_output_config"
        ),
        reason="nothing in a run asks for it or reads what it returns; remove it",
    ),
    Refusal(
        keys=_split("override_generation_config"),
        reason="[rollout] and [evaluation] say how answers are sampled, and it would not be read; set it there",
    ),
    Refusal(
        keys=_split("worker_extension_cls"),
        reason="engines bring one of their own, without which experts would answer with noise after a weight sync on a "
        "CPU; remove it",
    ),
    Refusal(
        keys=_split(
            "enable_prefix_caching prefix_* kv_transfer_config kv_events_config kv_offloading_* ec_* "
            "kv_sharing_fast_prefill"
        ),
        reason="what older weights computed must not survive a weight sync; remove it",
    ),
    Refusal(
        keys=_split(
            "skip_tokenizer_init tokenizer_mode tokenizer_revision served_model_name runner convert config_format "
            "pooler_config tokens_only"
        ),
        reason="engines take and give token ids of a model that generates; remove it",
    ),
    Refusal(
        keys=_split(
            "load_format model_weights hf_config_path hf_overrides model_class_overrides revision code_revision "
            "quantization* allow_deprecated_quantization weight_transfer_config *lora* speculative_config spec_* "
            "trust_remote_code hf_token download_dir"
        ),
        reason="engines serve the trainers' weights, whole and as they are, which come through a directory; remove it",
    ),
    Refusal(
        keys=_split(
            "distributed_executor_backend pipeline_parallel_size prefill_context_parallel_size "
            "decode_context_parallel_size data_parallel_* nnodes node_rank master_addr master_port "
            "enable_expert_parallel enable_elastic_ep device_ids"
        ),
        reason="an engine is cut by engine.tensor_parallel_size alone; use engine.engines for more engines",
    ),
    Refusal(
        keys=_split(
            "mm_* *_mm_* video_* media_io_kwargs allowed_* interleave_mm_strings io_processor_plugin "
            "language_model_only renderer_num_workers mamba_* enable_mamba_* *replayssm* *_prefill_backend "
            "kda_decode_backend engram_config diffusion_config"
        ),
        reason="models are decoders of text with attention; remove it",
    ),
    Refusal(
        keys=_split(
            "*eplb* expert_placement_strategy *_dbo* dbo_* ubatch_size dp_sync_interval *_for_dp_* elastic_* "
            "*fault_tolerance* all2all_* ray_workers_use_nsight"
        ),
        reason="it is for several engines that serve as one, and these do not know each other; remove it",
    ),
    Refusal(
        keys=_split("enable_sleep_mode sleep_* enable_cumem_allocator enable_nccl_comm_suspend"),
        reason="engines do not sleep while trainers train; remove it",
    ),
    Refusal(keys=_split("_*"), reason="it is vLLM's own, between its processes; remove it"),
    Refusal(
        keys=_split("tensor_parallel_size"),
        reason="GPUs are reserved for it; use engine.tensor_parallel_size",
    ),
)
REFUSED: Mapping[str, tuple[Refusal, ...]] = {"megatron": _MEGATRON, "optimizer": _OPTIMIZER, "vllm": _VLLM}


def refusal(section: str, key: str, config: RunConfig) -> str | None:
    """Why this field cannot be set in this run, if it cannot."""
    for one in REFUSED[section]:
        if one.covers(key) and not (one.on_cpu and config.on_gpus):
            return one.reason
    return None
