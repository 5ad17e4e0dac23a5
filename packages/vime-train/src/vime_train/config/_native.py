"""The sections whose keys are a vendor's own: `[megatron]`, `[optimizer]`, `[vllm]`.

Always true after `native_problems(config) == []`: every native key is a field of the installed vendor, its value has
the field's type, no key is one that Vime sets itself from another section, and none is known to break or to be read by
nothing (`_native_refused`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING

from vime_train.config._native_refused import refusal
from vime_train.config._vendor_choices import choices
from vime_train.config._vendor_fields import VendorClass, accepts, fields

if TYPE_CHECKING:
    from vime_train.config._run_config import RunConfig

TRANSFORMER = (
    VendorClass(package="megatron", file="core/transformer/transformer_config.py", name="TransformerConfig"),
    VendorClass(package="megatron", file="core/model_parallel_config.py", name="ModelParallelConfig"),
)
DATA_PARALLEL = (
    VendorClass(
        package="megatron",
        file="core/distributed/distributed_data_parallel_config.py",
        name="DistributedDataParallelConfig",
    ),
)
OPTIMIZER = (VendorClass(package="megatron", file="core/optimizer/optimizer_config.py", name="OptimizerConfig"),)
ENGINE = (VendorClass(package="vllm", file="engine/arg_utils.py", name="EngineArgs", aliases_are_scalars=True),)

_MODEL = "the model's config.json"
OWNED = {
    "megatron": {
        "tensor_model_parallel_size": "layout.tp",
        "pipeline_model_parallel_size": "layout.pp",
        "virtual_pipeline_model_parallel_size": "layout.vpp",
        "context_parallel_size": "layout.cp",
        "microbatch_group_size_per_vp_stage": "layout.microbatch_group_size_per_vp_stage",
        "calculate_per_token_loss": "train.calculate_per_token_loss",
        "num_layers": _MODEL,
        "hidden_size": _MODEL,
        "ffn_hidden_size": _MODEL,
        "num_attention_heads": _MODEL,
        "num_query_groups": _MODEL,
        "kv_channels": _MODEL,
        "layernorm_epsilon": _MODEL,
    },
    "optimizer": {},
    "vllm": {
        "model": "model.path",
        "tokenizer": "model.path",
        "dtype": "engine.dtype",
        "seed": "seed",
        "max_model_len": "data.max_prompt_tokens and rollout.max_new_tokens",
        "max_num_seqs": "engine.max_num_seqs",
        "max_num_batched_tokens": "engine.max_num_batched_tokens",
    },
}


def transformer_fields(config: RunConfig) -> dict[str, object]:
    """The keys of `[megatron]` that belong to `TransformerConfig`."""
    known = _known(TRANSFORMER)
    return {key: value for key, value in config.megatron.items() if key in known}


def data_parallel_fields(config: RunConfig) -> dict[str, object]:
    """The keys of `[megatron]` that belong to `DistributedDataParallelConfig` alone."""
    known, transformer = _known(DATA_PARALLEL), _known(TRANSFORMER)
    return {key: value for key, value in config.megatron.items() if key in known and key not in transformer}


def native_problems(config: RunConfig) -> list[str]:
    """One sentence per native key that cannot be passed on."""
    return [
        *_section_problems("megatron", config, config.megatron, (*TRANSFORMER, *DATA_PARALLEL)),
        *_section_problems(
            "optimizer", config, config.optimizer.native, OPTIMIZER, also=type(config.optimizer).model_fields
        ),
        *_section_problems("vllm", config, config.vllm, ENGINE),
    ]


def _known(vendors: Sequence[VendorClass]) -> dict[str, tuple[str, VendorClass]]:
    return {key: (annotation, vendor) for vendor in vendors for key, annotation in fields(vendor).items()}


def _section_problems(
    section: str,
    config: RunConfig,
    values: Mapping[str, object],
    vendors: Sequence[VendorClass],
    also: Mapping[str, object] | None = None,
) -> Iterator[str]:
    known = _known(vendors) if values else {}
    names = " or ".join(vendor.name for vendor in vendors)
    for key, value in values.items():
        given = f"{section}.{key} = {value!r}"
        if key in OWNED[section]:
            yield f"{given}: this is decided by {OWNED[section][key]}; set it there."
        elif key not in known:
            close = get_close_matches(key, [*known, *(also or ())], n=1)
            hint = f" Did you mean {section}.{close[0]}?" if close else ""
            yield f"unknown key {section}.{key}: {_fields_of(names, vendors[0], known)}.{hint}"
        elif reason := refusal(section, key, config):
            yield f"{given}: {reason}."
        else:
            annotation, vendor = known[key]
            if not accepts(annotation, value, aliases_are_scalars=vendor.aliases_are_scalars):
                yield f"{given}: {vendor.name}.{key} is declared as {annotation}."
            elif (allowed := choices(vendor, annotation)) and value not in allowed:
                yield f"{given}: {vendor.name}.{key} is one of {', '.join(map(repr, allowed))}."


def _fields_of(names: str, vendor: VendorClass, known: Mapping[str, object]) -> str:
    if known:
        return f"the installed {vendor.package} has no such field in {names}"
    return f"{vendor.package} is not installed, so its {names} cannot be read"
