"""Law T1 as a table: how far one optimizer step lies from the step on one rank, in every layout.

    python packages/vime-train/benchmarks/t1_table.py [--experts] [--out FILE]

Real Megatron-core over gloo, one process per rank, the saved batch of the tests (12 rollouts, 16 samples of 5 to 63
tokens, siblings, masked tokens, a fully masked sample), fp32. The optimizer is gradient descent without clipping (Adam
with an epsilon of 1000), so that a wrong scale would show. Takes about a minute on two cores. With `--experts` the
model is a mixture of experts with one dense layer.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
import tempfile
from pathlib import Path

import numpy as np

ROLLOUTS = Path(__file__).parents[1] / "tests" / "megatron" / "rollouts.json"
LAYOUTS: list[dict[str, int]] = [
    {},
    {"dp": 2},
    {"cp": 2},
    {"tp": 2},
    {"pp": 2},
    {"pp": 2, "vpp": 2},
    {"dp": 2, "cp": 2},
    {"tp": 2, "cp": 2},
    {"tp": 2, "pp": 2},
    {"pp": 4},
]
EXPERT_LAYOUTS: list[dict[str, int]] = [
    {},
    {"dp": 2},
    {"cp": 2},
    {"tp": 2},
    {"pp": 2},
    {"pp": 2, "vpp": 2},
    {"dp": 2, "ep": 2},
    {"cp": 2, "ep": 2},
    {"tp": 2, "ep": 2},
    {"dp": 2, "cp": 2, "ep": 4},
    {"dp": 2, "tp": 2, "ep": 2},
    {"dp": 2, "pp": 2, "ep": 2},
]
MODES = [(aggregation, per_token) for aggregation in ("rollout_mean", "token_mean") for per_token in (False, True)]
RANKS = 4


def saved_rollouts() -> list[object]:
    from vime_train.rollout import Problem, Rollout, Sample

    problem = Problem(problem_id="saved", prompt="", answer="", prompt_tokens=())
    rollouts = []
    for record in json.loads(ROLLOUTS.read_text()):
        common = {name: record[name] for name in ("rollout_id", "group_id", "reward")}
        samples = tuple(
            Sample(
                tokens=tuple(sample["tokens"]),
                response_length=len(sample["loss_mask"]),
                loss_mask=tuple(sample["loss_mask"]),
                rollout_log_probs=tuple(sample["rollout_log_probs"]),
                status="completed",
                weight_version=0,
                **common,
            )
            for sample in record["samples"]
        )
        rollouts.append(Rollout(problem=problem, samples=samples, **common))
    return rollouts


def rank_batch(config: object, rank: int) -> object:
    """What this rank trains on: the saved batch, planned for the layout."""
    from vime_schedule import TokenBudget, build_dp_schedule
    from vime_train.algorithm import advantages, step_weights
    from vime_train.rollout import parallel_layout
    from vime_train.rollout._assemble import cut

    rollouts = saved_rollouts()
    samples = [sample for rollout in rollouts for sample in rollout.samples]
    schedule = build_dp_schedule(
        [len(sample.tokens) for sample in samples],
        layout=parallel_layout(config.layout),
        batching=TokenBudget(max_tokens_per_gpu=96),
        global_batch_size=len(rollouts),
        rollout_ids=[sample.rollout_id for sample in samples],
        shortage="fill",
    )
    weights = step_weights(schedule, samples, config.algorithm)
    batches = cut(samples, advantages(rollouts, config.algorithm), weights, schedule)
    return batches[rank // (config.layout.cp * config.layout.tp) % config.layout.dp]


def work(rank: int, layouts: list[dict[str, int]], directory: Path) -> None:
    """Everything one process does: every layout that has its rank, every mode."""
    import torch

    from vime_train.config import RunConfig
    from vime_train.megatron import Trainer

    torch.set_num_threads(1)
    for number, layout in enumerate(layouts):
        for mode, (aggregation, per_token) in enumerate(MODES):
            config = RunConfig.model_validate(
                {
                    "layout": {"dp": 1, **layout},
                    "algorithm": {"aggregation": aggregation},
                    "train": {"calculate_per_token_loss": per_token},
                    "optimizer": {"lr": 100.0, "adam_eps": 1000.0, "clip_grad": 1e3},
                }
            )
            if rank >= config.layout.world_size:
                continue
            out = directory / f"{number}-{mode}"
            with Trainer(
                config,
                model_path=str(directory / "model"),
                rank=rank,
                world_size=config.layout.world_size,
                init_method=f"file://{out}.store",
            ) as trainer:
                (report,) = trainer.train(rank_batch(config, rank))
                trainer.export(str(out))
            if rank == 0:
                (out / "report.json").write_text(json.dumps(report))


def make_model(directory: Path, *, experts: bool) -> None:
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM, Qwen3MoeConfig, Qwen3MoeForCausalLM

    torch.manual_seed(0)
    routed = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24, "mlp_only_layers": [1]}
    config_class, model_class = (Qwen3MoeConfig, Qwen3MoeForCausalLM) if experts else (Qwen3Config, Qwen3ForCausalLM)
    config = config_class(
        **(routed if experts else {}),
        vocab_size=48,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        max_position_embeddings=256,
        initializer_range=0.2,
        tie_word_embeddings=False,
    )
    model_class(config).save_pretrained(directory)


def outcome(directory: Path) -> tuple[dict[str, np.ndarray], float]:
    from safetensors.numpy import load_file

    report = json.loads((directory / "report.json").read_text())
    return load_file(directory / "model.safetensors"), report["grad_norm"]


def table(layouts: list[dict[str, int]], directory: Path) -> str:
    """One row per layout; a cell is the largest difference of any weight, and the relative one of the gradient norm."""
    modes = [f"{name}, per-token loss {'on' if on else 'off'}" for name, on in MODES]
    lines = [
        "| layout | ranks | " + " | ".join(modes) + " |",
        "|---|---|" + "---|" * len(MODES),
    ]
    for number, layout in enumerate(layouts):
        name = " ".join(f"{axis} {size}" for axis, size in layout.items()) or "dp 1"
        ranks = int(np.prod([size for axis, size in layout.items() if axis not in ("vpp", "ep")], initial=1))
        cells = [_cell(directory, number, mode) for mode in range(len(MODES))]
        lines.append(f"| {name} | {ranks} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _cell(directory: Path, number: int, mode: int) -> str:
    expected, expected_norm = outcome(directory / f"0-{mode}")
    weights, norm = outcome(directory / f"{number}-{mode}")
    if number == 0:
        from safetensors.numpy import load_file

        before = load_file(directory / "model" / "model.safetensors")
        return f"moves by up to {max(np.abs(weights[name] - before[name]).max() for name in before):.2g}"
    difference = max(np.abs(weights[name] - expected[name]).max() for name in expected)
    return f"{difference:.0e} ({abs(norm / expected_norm - 1):.0e})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="also write the table to this file")
    parser.add_argument("--experts", action="store_true", help="a model with experts, also spread over ranks (EP)")
    arguments = parser.parse_args()
    layouts = EXPERT_LAYOUTS if arguments.experts else LAYOUTS
    os.environ.update(OMP_NUM_THREADS="1", GLOO_SOCKET_IFNAME="lo")
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        make_model(directory / "model", experts=arguments.experts)
        context = multiprocessing.get_context("spawn")
        processes = [context.Process(target=work, args=(rank, layouts, directory)) for rank in range(RANKS)]
        for process in processes:
            process.start()
        for process in processes:
            process.join()
        if any(process.exitcode for process in processes):
            sys.exit("a rank failed; its error is above")
        text = table(layouts, directory)
    print(text)
    if arguments.out:
        arguments.out.write_text(text)


if __name__ == "__main__":
    main()
