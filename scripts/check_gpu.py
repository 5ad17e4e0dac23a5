"""Check on a GPU machine what CI, which has none, cannot: every branch that docs/gpu.md lists.

    python scripts/check_gpu.py              # one GPU or more; needs vime-train installed
    python scripts/check_gpu.py --rehearse   # the same script on CPUs alone, to try the script itself

A small random model is trained for one step on the CPU over gloo; every GPU check must give the same step. Prints one
line per check and ends with 1 if any failed.
"""

from __future__ import annotations

import argparse
import gzip
import json
import multiprocessing
import os
import sys
import tempfile
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

LENGTHS = [(3, 60), (9, 46), (5, 17), (7, 30), (4, 5), (12, 24), (6, 11), (8, 3)]


@dataclass(frozen=True, kw_only=True)
class Check:
    """One job: a layout, Megatron's own settings, and how far its step may lie from the CPU's."""

    name: str
    layout: dict[str, int] = field(default_factory=dict)
    megatron: dict[str, bool] = field(default_factory=dict)
    tolerance: float = 2e-4
    resume: bool = False
    record: bool = False
    model: str = "dense"

    @property
    def ranks(self) -> int:
        """Processes, and GPUs, that the check needs."""
        return int(np.prod([size for axis, size in self.layout.items() if axis not in ("vpp", "ep")], initial=1))


CHECKS = (
    Check(name="one GPU, fp32: NCCL, local layers on CUDA"),
    Check(name="one GPU, fp32: save, load, same next step", resume=True),
    Check(name="one GPU, fp32: the profiler's kernels, and the memory snapshot", record=True),
    Check(name="one GPU, bf16: Transformer Engine's layers if installed", megatron={"bf16": True}, tolerance=0.05),
    Check(name="dp 2", layout={"dp": 2}),
    Check(name="tp 2", layout={"tp": 2}),
    Check(name="cp 2", layout={"cp": 2}),
    Check(name="pp 2", layout={"pp": 2}),
    Check(name="pp 2 vpp 2", layout={"pp": 2, "vpp": 2}),
    Check(name="cp 2, bf16", layout={"cp": 2}, megatron={"bf16": True}, tolerance=0.05),
    Check(
        name="tp 2, bf16, sequence parallel", layout={"tp": 2}, megatron={"bf16": True, "sequence_parallel": True},
        tolerance=0.05,
    ),
    Check(name="dp 2 cp 2", layout={"dp": 2, "cp": 2}),
    Check(name="experts, one GPU, fp32", model="experts"),
    Check(name="experts, one GPU, bf16", model="experts", megatron={"bf16": True}, tolerance=0.05),
    Check(name="experts, dp 2 ep 2: all-to-all over NCCL", model="experts", layout={"dp": 2, "ep": 2}),
    Check(name="experts, tp 2 ep 2", model="experts", layout={"tp": 2, "ep": 2}),
    Check(
        name="experts, tp 2, bf16, sequence parallel", model="experts", layout={"tp": 2},
        megatron={"bf16": True, "sequence_parallel": True}, tolerance=0.05,
    ),
)  # fmt: skip


def batch_for(config: object, rank: int) -> object:
    """A ragged batch with masked tokens, planned for the layout."""
    from vime_schedule import TokenBudget, build_dp_schedule
    from vime_train.rollout import RankBatch, parallel_layout

    rng = np.random.default_rng(0)
    samples = [(rng.integers(2, 48, prompt + answer), rng.random(answer) < 0.9) for prompt, answer in LENGTHS]
    schedule = build_dp_schedule(
        [len(tokens) for tokens, _ in samples],
        layout=parallel_layout(config.layout),
        batching=TokenBudget(max_tokens_per_gpu=128),
        global_batch_size=len(samples),
        shortage="fill",
    )
    mine = schedule.for_rank(rank // (config.layout.cp * config.layout.tp) % config.layout.dp)
    trained = int(sum(mask.sum() for _, mask in samples))
    columns = [samples[position] for position in mine.partition]
    return RankBatch(
        schedule=mine,
        fingerprint=schedule.fingerprint,
        tokens=tuple(tokens for tokens, _ in columns),
        response_lengths=tuple(len(mask) for _, mask in columns),
        loss_masks=tuple(mask.astype(np.float32) for _, mask in columns),
        old_log_probs=tuple(np.full(len(mask), -3.9, np.float32) for _, mask in columns),
        advantages=tuple(np.full(len(mask), (-1.0) ** len(mask), np.float32) for _, mask in columns),
        weights=np.full(len(columns), 1.0 / trained),
        step_mask_sums=(trained,),
        rewards=np.zeros(len(columns)),
        step_rollouts=(len(samples),),
    )


def work(rank: int, check: Check, directory: Path, out: Path) -> None:
    """One rank of one check: a step, and for `resume` a second one with and without a checkpoint between."""
    import torch

    from vime_train.config import RunConfig
    from vime_train.megatron import Trainer

    config = RunConfig.model_validate(
        {
            "layout": {"dp": 1, **check.layout},
            "megatron": check.megatron,
            "optimizer": {"lr": 100.0, "adam_eps": 1000.0, "clip_grad": 1e3},
        }
    )
    trainer = Trainer(
        config,
        model_path=str(directory / check.model),
        rank=rank,
        world_size=check.ranks,
        init_method=f"file://{out}.store",
    )
    with trainer:
        batch = batch_for(config, rank)
        record = f"{out}-profile" if check.record else None
        reports = trainer.train(batch, trace_to=record, memory_to=record if torch.cuda.is_available() else None)
        trainer.export(str(out))
        if check.resume:
            trainer.save(f"{out}-checkpoint")
            followed = trainer.train(batch)
            trainer.load(f"{out}-checkpoint")
            reports = [*reports, *followed, *trainer.train(batch)]
    if rank == 0:
        (out / "reports.json").write_text(json.dumps(reports))


def guarded(rank: int, check: Check, directory: Path, out: Path) -> None:
    """Print the traceback of a rank before its process ends."""
    try:
        work(rank, check, directory, out)
    except BaseException:
        traceback.print_exc()
        raise


def run(check: Check, directory: Path, out: Path, *, on_gpu: bool) -> list[dict[str, float]]:
    """All ranks of a check in processes of their own; their reports.

    Raises:
        RuntimeError: a rank failed or took more than five minutes.
    """
    hidden = {} if on_gpu else {"CUDA_VISIBLE_DEVICES": ""}
    os.environ.update(OMP_NUM_THREADS="1", CUDA_DEVICE_MAX_CONNECTIONS="1", **hidden)
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=guarded, args=(rank, check, directory, out)) for rank in range(check.ranks)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(300)
        if process.is_alive():
            process.kill()
    for name in hidden:
        del os.environ[name]
    if any(process.exitcode for process in processes):
        raise RuntimeError(f"{check.name}: exit codes {[process.exitcode for process in processes]}")
    reports: list[dict[str, float]] = json.loads((out / "reports.json").read_text())
    return reports


def problems(check: Check, directory: Path, *, number: int, on_gpu: bool) -> Iterator[str]:
    """What is wrong with a check's step."""
    out = directory / f"out-{number}"
    reports = run(check, directory, out, on_gpu=on_gpu)
    if check.resume and reports[1] != reports[2]:
        yield f"the step after a load differs: {reports[1]} and {reports[2]}"
    if check.record:
        yield from _missing_records(Path(f"{out}-profile"), on_gpu=on_gpu)
    expected = directory / f"expected-{check.model}"
    wanted = json.loads((expected / "reports.json").read_text())[0]
    for name in ("loss", "grad_norm"):
        if abs(reports[0][name] - wanted[name]) > check.tolerance * max(1.0, abs(wanted[name])):
            yield f"{name} is {reports[0][name]:.6g}, on the CPU {wanted[name]:.6g}"
    farthest = max(np.abs(_weights(out)[name] - tensor).max() for name, tensor in _weights(expected).items())
    if farthest > check.tolerance:
        yield f"a weight lies {farthest:.2g} from the CPU's step"


def _missing_records(directory: Path, *, on_gpu: bool) -> Iterator[str]:
    with gzip.open(directory / "trainer-0.trace.json.gz", "rt") as file:
        categories = {event.get("cat") for event in json.load(file)["traceEvents"]}
    if ("kernel" if on_gpu else "cpu_op") not in categories:
        yield f"the trace holds {sorted(filter(None, categories))}"
    snapshot = directory / "trainer-0.memory.pickle"
    if on_gpu and not (snapshot.is_file() and snapshot.stat().st_size):
        yield "there is no memory snapshot"


def _weights(directory: Path) -> dict[str, np.ndarray]:
    from safetensors.torch import load_file

    return {name: tensor.float().numpy() for name, tensor in load_file(directory / "model.safetensors").items()}


def make_models(directory: Path) -> None:
    """Write a small random Qwen3 model, and one with experts."""
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM, Qwen3MoeConfig, Qwen3MoeForCausalLM

    torch.manual_seed(0)
    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 4, "vocab_size": 48, "head_dim": 32}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "tie_word_embeddings": False}
    experts = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 64, "norm_topk_prob": True}
    dense = Qwen3Config(**sizes, **heads, initializer_range=0.1)
    Qwen3ForCausalLM(dense).save_pretrained(directory / "dense")
    mixture = Qwen3MoeConfig(**sizes, **heads, **experts, mlp_only_layers=[1], initializer_range=0.1)
    Qwen3MoeForCausalLM(mixture).save_pretrained(directory / "experts")


def main() -> int:
    """Run all checks that this machine has GPUs for; 0 if none failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rehearse", action="store_true", help="run everything on CPUs")
    on_gpu = not parser.parse_args().rehearse
    import torch

    gpus = torch.cuda.device_count() if on_gpu else 4
    if not gpus:
        print("no GPU is visible to torch: run this on a GPU machine, or with --rehearse", file=sys.stderr)
        return 2
    failed = 0
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        make_models(directory)
        for model in ("dense", "experts"):
            run(Check(name="one CPU", model=model), directory, directory / f"expected-{model}", on_gpu=False)
        for number, check in enumerate(CHECKS):
            if check.ranks > gpus or ("sequence_parallel" in check.megatron and not on_gpu):
                print(f"left out  {check.name} (needs {check.ranks} GPUs)")
                continue
            try:
                found = list(problems(check, directory, number=number, on_gpu=on_gpu))
            except RuntimeError as error:
                found = [str(error)]
            failed += bool(found)
            print(f"{'FAILED' if found else 'ok':9} {check.name} {'; '.join(found)}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
