"""Native sections: names and types are those of the installed vendors, read without importing them."""

from __future__ import annotations

import json
import subprocess
import sys
from fnmatch import fnmatchcase

import pytest

from vime_train.config import data_parallel_fields, load_config, native_problems, transformer_fields
from vime_train.config._native import DATA_PARALLEL, ENGINE, OPTIMIZER, OWNED, TRANSFORMER
from vime_train.config._native_refused import REFUSED
from vime_train.config._vendor_choices import choices
from vime_train.config._vendor_fields import VendorClass, accepts, fields


def problems(*overrides: str) -> list[str]:
    return native_problems(load_config(overrides=overrides))


def test_fields_that_exist_and_fit_pass() -> None:
    assert not problems(
        "cluster.gpus_per_process=1",
        "megatron.recompute_granularity='full'",
        "megatron.recompute_num_layers=1",
        "megatron.bucket_size=1000",
        "optimizer.adam_eps=1e-6",
        "vllm.gpu_memory_utilization=0.5",
        "vllm.kv_cache_dtype='auto'",
    )


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("megatron.recompute_num_layer=1", "Did you mean megatron.recompute_num_layers?"),
        ("megatron.barrier_with_L1_time=3", "ModelParallelConfig.barrier_with_L1_time is declared as bool"),
        ("megatron.params_dtype='float32'", "declared as torch.dtype"),
        ("megatron.tensor_model_parallel_size=2", "this is decided by layout.tp; set it there"),
        ("megatron.bucket_size='x'", "DistributedDataParallelConfig.bucket_size is declared as"),
        ("optimizer.lrr=1", "unknown key optimizer.lrr: the installed megatron has no such field in OptimizerConfig"),
        ("optimizer.lrr=1", "Did you mean optimizer.lr?"),
        ("optimizer.adam_eps='x'", "OptimizerConfig.adam_eps is declared as float"),
        ("vllm.gpu_memory_utilisation=1", "Did you mean vllm.gpu_memory_utilization?"),
        ("vllm.gpu_memory_utilization='a'", "EngineArgs.gpu_memory_utilization is declared as float"),
        ("vllm.kv_cache_dtype='fp7'", "EngineArgs.kv_cache_dtype is one of 'auto', "),
        ("vllm.performance_mode='x'", "is one of 'balanced', 'interactivity', 'throughput'"),
        ("vllm.safetensors_load_strategy='x'", "'torchao', None."),
        ("vllm.model='x'", "this is decided by model.path; set it there"),
    ],
)
def test_what_does_not_fit_is_told(override: str, message: str) -> None:
    found = problems(override)
    assert len(found) == 1
    assert message in found[0]


@pytest.mark.parametrize(
    ("override", "reason"),
    [
        ("optimizer.optimizer='sgd'", "Megatron's distributed optimizer, which is always used, is Adam; remove it."),
        ("optimizer.decoupled_lr=1.0", "every parameter follows optimizer.lr and optimizer.schedule"),
        ("optimizer.bf16=true", "this is decided by megatron.bf16"),
        ("megatron.fp16=true", "fp16 needs a loss scale"),
        ("megatron.num_moe_experts=4", "experts are those of config.json"),
        ("megatron.hidden_dropout=0.1", "ratios would be wrong"),
        ("megatron.add_qkv_bias=true", "the model computes what its config.json says"),
        ("megatron.use_distributed_optimizer=false", "the distributed optimizer is always used"),
        ("megatron.overlap_grad_reduce=true", "gradients are reduced once"),
        ("megatron.check_for_nan_in_grad=true", "skipped, counted and named (train.max_skipped_steps)"),
        ("megatron.recompute_granularity='full'", "it needs a GPU"),
        ("megatron.sequence_parallel=true", "it needs a GPU"),
        ("vllm.logprobs_mode='processed_logprobs'", "those of the whole distribution"),
        ("vllm.hf_token='secret'", "which come through a directory"),
        ("vllm.enable_sleep_mode=true", "engines do not sleep"),
        ("vllm.mm_processor_cache_gb=1.0", "models are decoders of text"),
        ("vllm.enable_prefix_caching=true", "must not survive a weight sync"),
        ("vllm.tensor_parallel_size=2", "use engine.tensor_parallel_size"),
        ("vllm.override_generation_config={top_p=0.5}", "[rollout] and [evaluation] say how answers are sampled"),
    ],
)
def test_what_would_break_or_do_nothing_is_refused_with_its_reason(override: str, reason: str) -> None:
    found = problems(override)
    assert len(found) == 1
    assert found[0].startswith(override.partition("=")[0])
    assert reason in found[0]


def test_a_refusal_names_fields_that_exist() -> None:
    """A pattern that covers nothing, or a field that another table owns, would be a rule about nothing."""
    for section, vendors in (("megatron", (*TRANSFORMER, *DATA_PARALLEL)), ("vllm", ENGINE), ("optimizer", OPTIMIZER)):
        known = {key for vendor in vendors for key in fields(vendor)} - set(OWNED[section])
        for refusal in REFUSED[section]:
            for pattern in refusal.keys:
                assert any(fnmatchcase(key, pattern) for key in known), f"{section}.{pattern}"


def test_megatron_keys_are_split_by_the_class_that_takes_them() -> None:
    config = load_config(overrides=["megatron.recompute_num_layers=1", "megatron.bucket_size=7"])
    assert transformer_fields(config) == {"recompute_num_layers": 1}
    assert data_parallel_fields(config) == {"bucket_size": 7}


def test_fields_of_an_absent_vendor_are_told() -> None:
    assert fields(VendorClass(package="no_such_vendor", file="a.py", name="A")) == {}


def test_a_vendor_whose_class_has_moved_is_told() -> None:
    with pytest.raises(LookupError, match="has no class Gone"):
        fields(VendorClass(package="megatron", file="core/model_parallel_config.py", name="Gone"))


@pytest.mark.parametrize(
    ("annotation", "value", "expected"),
    [
        ("int", 3, True),
        ("int", True, False),
        ("int", 3.0, False),
        ("float", 3, True),
        ("float", True, False),
        ("bool", True, True),
        ("bool", 1, False),
        ("str", "a", True),
        ("Optional[int]", None, True),
        ("Optional[int]", "a", False),
        ("int | None", None, True),
        ("Union[int, str]", "a", True),
        ("Union[int, str]", 1.5, False),
        ("Literal['a', 'b']", "a", True),
        ("Literal['a', 'b']", "c", False),
        ("List[int]", [1, 2], True),
        ("list[int]", [1, "x"], False),
        ("dict[str, int]", {"a": 1}, True),
        ("'Optional[float]'", 1.5, True),
        ("Callable", 3, False),
        ("torch.dtype", "float32", False),
        ("Tuple[int]", [1], False),
    ],
)
def test_types_as_written_in_a_source(annotation: str, value: object, expected: bool) -> None:
    assert accepts(annotation, value, aliases_are_scalars=False) is expected


def test_a_name_of_literals_takes_scalars_only_where_the_vendor_writes_so() -> None:
    assert accepts("CacheDType", "auto", aliases_are_scalars=True)
    assert not accepts("CacheDType", "auto", aliases_are_scalars=False)
    assert not accepts("CacheDType", ["auto"], aliases_are_scalars=True)


def test_names_of_literals_are_followed_and_other_names_allow_everything() -> None:
    engine = ENGINE[0]
    assert choices(engine, "SchedulerPolicy") == ("fcfs", "priority")
    assert choices(engine, "SchedulerPolicy | None") == ("fcfs", "priority", None)
    assert choices(engine, "Literal['a', 'b'] | None") == ("a", "b", None)
    assert choices(engine, "SchedulerPolicy | str") == ()
    assert choices(engine, "AttentionBackendEnum | None") == ()
    assert choices(engine, "NoSuchName") == ()


def test_a_configuration_within_a_configuration_is_a_table() -> None:
    """A text in its place used to pass the launch check and to fail in vLLM."""
    assert accepts("CompilationConfig", {"level": 0}, aliases_are_scalars=True)
    assert not accepts("CompilationConfig", "fast", aliases_are_scalars=True)
    assert not accepts("CompilationConfig", {"level": 0}, aliases_are_scalars=False)


def test_owned_keys_are_real_fields() -> None:
    for section, vendors in (("megatron", (*TRANSFORMER, *DATA_PARALLEL)), ("vllm", ENGINE), ("optimizer", OPTIMIZER)):
        known = {key for vendor in vendors for key in fields(vendor)}
        assert set(OWNED[section]) <= known


READ = """
import dataclasses, json
from megatron.core.optimizer.optimizer_config import OptimizerConfig
from megatron.core.distributed.distributed_data_parallel_config import DistributedDataParallelConfig
classes = (OptimizerConfig, DistributedDataParallelConfig)
print(json.dumps([sorted(field.name for field in dataclasses.fields(one)) for one in classes]))
"""


@pytest.mark.slow
def test_the_source_says_what_the_imported_class_says() -> None:
    found = subprocess.run([sys.executable, "-W", "ignore", "-c", READ], capture_output=True, text=True, check=True)
    optimizer, data_parallel = json.loads(found.stdout.splitlines()[-1])
    assert sorted(fields(OPTIMIZER[0])) == optimizer
    assert sorted(fields(DATA_PARALLEL[0])) == data_parallel
