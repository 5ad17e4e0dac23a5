"""Does each algorithm learn? A table and a picture of curves, from one process without Ray and vLLM.

    python packages/vime-train/benchmarks/bench_algorithms.py [--out DIRECTORY] [--iterations N] [--lr RATE]

The trainer is the real one (Megatron-core over gloo, one rank), the batches come from `rollout.assemble`; an engine of
a few lines samples from the exported weights with transformers. The task: a prompt is one small letter, and each of
six response tokens scores 1/6 if it is that letter as a capital, of 19 tokens. PPO's critic, KL to the first policy,
corrections and so on run as configured; `sft` trains on the better quarter of each group, and `distillation` has the
model that `grpo` made as its teacher and sees no rewards. A curve is the mean reward of sampled answers. Takes about
three minutes on one core.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from transformers import AutoModelForCausalLM
from transformers.utils import logging

from vime_train.config import RunConfig
from vime_train.data import CharTokenizer, make_model
from vime_train.engine import Completion, GenerationRequest
from vime_train.megatron import Trainer
from vime_train.rollout import Problem, Rollout, Sample, assemble

SMALL, CAPITAL = "abcdefgh", "ABCDEFGH"
TOKENIZER = CharTokenizer(alphabet=SMALL + CAPITAL)
PROMPTS, COPIES, LENGTH = 8, 16, 6
KEEP = {"rollout": {"drop_zero_variance": False}}
KL = {"coefficient": 0.02}
ALGORITHMS: dict[str, dict[str, object]] = {
    "grpo": {"algorithm": {}},
    "dapo": {"algorithm": {"aggregation": "token_mean", "clip_high": 0.28, "dual_clip": 3.0}},
    "dr_grpo": {"algorithm": {"advantage": "dr_grpo", "aggregation": "constant", "constant_tokens": LENGTH}},
    "rloo": {"algorithm": {"advantage": "rloo"}},
    "reinforce_plus_plus": {
        "algorithm": {"advantage": "reinforce_plus_plus", "kl": {"placement": "reward", "estimator": "k1", **KL}},
        **KEEP,
    },
    "reinforce_plus_plus_baseline": {"algorithm": {"advantage": "reinforce_plus_plus_baseline"}, **KEEP},
    "ppo": {"algorithm": {"advantage": "gae", "lam": 0.95, "clip_high": 0.2}, **KEEP},
    "gspo": {"algorithm": {"loss": "gspo"}},
    "cispo": {"algorithm": {"loss": "cispo"}},
    "grpo, KL in loss": {"algorithm": {"kl": KL, "old_log_probs": "recompute"}, **KEEP},
    "grpo, entropy": {"algorithm": {"entropy_coefficient": 0.01}, **KEEP},
    "grpo, TIS": {"algorithm": {"correction": {"kind": "tis"}, "old_log_probs": "recompute"}},
    "grpo, IcePop": {"algorithm": {"correction": {"kind": "icepop"}, "old_log_probs": "recompute"}},
    "grpo, MIS": {
        "algorithm": {"correction": {"kind": "mis", "level": "geometric"}, "old_log_probs": "recompute"},
    },
    "sft": {"algorithm": {"advantage": "none", "loss": "sft"}, **KEEP},
    "distillation": {"algorithm": {"advantage": "none", "distillation": {"coefficient": 1.0}}, **KEEP},
}


class TransformersEngine:
    """Samples with transformers, without a cache: enough for six tokens."""

    def __init__(self, directory: Path) -> None:
        self.load_weights(str(directory), version=0)

    def load_weights(self, directory: str, *, version: int) -> None:
        """Take the weights of a Hugging Face directory."""
        self._model = AutoModelForCausalLM.from_pretrained(directory)
        self._version = version

    def generate(self, requests: Sequence[GenerationRequest]) -> list[list[Completion]]:
        """All samples of all requests at once: prompts and answers of one length, at temperature 1."""
        tokens = torch.tensor([request.prompt_tokens for request in requests for _ in range(request.num_samples)])
        generator = torch.Generator().manual_seed(requests[0].seed)
        prompt, log_probs = tokens.shape[1], []
        for _ in range(requests[0].max_new_tokens):
            with torch.no_grad():
                scores = self._model(tokens).logits[:, -1].log_softmax(-1)
            chosen = torch.multinomial(scores.exp(), 1, generator=generator)
            tokens = torch.cat([tokens, chosen], dim=1)
            log_probs.append(scores.gather(1, chosen))
        pairs = zip(tokens[:, prompt:].tolist(), torch.cat(log_probs, dim=1).tolist(), strict=True)
        completions = iter(
            [
                Completion(
                    tokens=tuple(answer),
                    log_probs=tuple(scores),
                    finish_reason="length",
                    weight_version=self._version,
                )
                for answer, scores in pairs
            ]
        )
        return [[next(completions) for _ in range(request.num_samples)] for request in requests]

    def close(self) -> None:
        """Nothing is held."""


def collect(engine: TransformersEngine, iteration: int) -> list[Rollout]:
    """All prompts, each answered several times."""
    problems = [
        Problem(problem_id=letter, prompt=letter, answer=letter.upper(), prompt_tokens=TOKENIZER.encode(letter))
        for letter in SMALL[:PROMPTS]
    ]
    requests = [
        GenerationRequest(
            prompt_tokens=problem.prompt_tokens,
            num_samples=COPIES,
            temperature=1.0,
            top_p=1.0,
            max_new_tokens=LENGTH,
            stop_token_ids=(),
            seed=iteration,
        )
        for problem in problems
    ]
    answered = zip(problems, engine.generate(requests), strict=True)
    return [
        record(problem, completion, rollout_id=group * COPIES + copy, group_id=group)
        for group, (problem, completions) in enumerate(answered)
        for copy, completion in enumerate(completions)
    ]


def record(problem: Problem, completion: Completion, *, rollout_id: int, group_id: int) -> Rollout:
    """A rollout of one sample; its reward is the share of right tokens."""
    (right,) = TOKENIZER.encode(problem.answer)
    reward = float(np.mean([token == right for token in completion.tokens]))
    sample = Sample(
        tokens=problem.prompt_tokens + completion.tokens,
        response_length=len(completion.tokens),
        loss_mask=(1,) * len(completion.tokens),
        rollout_log_probs=completion.log_probs,
        rollout_id=rollout_id,
        group_id=group_id,
        reward=reward,
        status="truncated",
        weight_version=completion.weight_version,
    )
    return Rollout(rollout_id=rollout_id, group_id=group_id, problem=problem, samples=(sample,), reward=reward)


def better_quarter(rollouts: Sequence[Rollout]) -> list[Rollout]:
    """Of each group, as a sample filter would."""
    ranked = sorted(rollouts, key=lambda rollout: (rollout.group_id, -rollout.reward))
    return [rollout for place, rollout in enumerate(ranked) if place % COPIES < COPIES // 4]


def configure(name: str, teacher: Path, *, lr: float) -> RunConfig:
    """Two optimizer steps of 64 rollouts per iteration."""
    chosen = ALGORITHMS[name]
    algorithm = dict(chosen["algorithm"])  # type: ignore[call-overload]
    if name == "distillation":
        algorithm["distillation"] = {"coefficient": 1.0, "teacher": str(teacher)}
    return RunConfig.model_validate(
        {
            "layout": {"dp": 1},
            "model": {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "head_dim": 16},
            "rollout": {
                "prompts_per_iteration": PROMPTS,
                "rollouts_per_prompt": COPIES,
                "max_new_tokens": LENGTH,
                **chosen.get("rollout", {}),  # type: ignore[dict-item]
            },
            "train": {"global_batch_size": PROMPTS * COPIES // 2},
            "optimizer": {"lr": lr},
            "critic": {"lr": 1e-2},
            "algorithm": algorithm,
        }
    )


def curve(name: str, directory: Path, *, iterations: int, lr: float) -> Iterator[float]:
    """Mean reward of each iteration, sampled before it trains; the last one after all training."""
    model, weights = directory / "model", directory / "weights" / name
    config = configure(name, directory / "weights" / "grpo", lr=lr)
    if not model.exists():
        make_model(str(model), config.model, TOKENIZER, seed=0)
    engine = TransformersEngine(model)
    store = f"file://{directory}/store-{time.monotonic_ns()}"
    with Trainer(config, model_path=str(model), rank=0, world_size=1, init_method=store) as trainer:
        for iteration in range(iterations):
            rollouts = collect(engine, iteration)
            yield float(np.mean([rollout.reward for rollout in rollouts]))
            chosen = better_quarter(rollouts) if name == "sft" else rollouts
            batch = assemble(chosen, config, iteration=iteration)
            for part in batch.rank_batches:
                trainer.train(part)
            trainer.export(str(weights))
            engine.load_weights(str(weights), version=iteration + 1)
    yield float(np.mean([rollout.reward for rollout in collect(engine, iterations)]))


def main() -> None:
    """Train, write `algorithms.md`, `algorithms.json` and `algorithms.png`."""
    logging.disable_progress_bar()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent)
    parser.add_argument("--iterations", type=int, default=40)
    parser.add_argument("--lr", type=float, default=6e-3)
    parser.add_argument("--only", nargs="*", default=list(ALGORITHMS), choices=list(ALGORITHMS), metavar="NAME")
    arguments = parser.parse_args()
    curves: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as scratch:
        (Path(scratch) / "weights").mkdir()
        for name in arguments.only:
            curves[name] = list(curve(name, Path(scratch), iterations=arguments.iterations, lr=arguments.lr))
            print(f"{name:30s} {curves[name][0]:.3f} -> {curves[name][-1]:.3f}", flush=True)
    arguments.out.mkdir(parents=True, exist_ok=True)
    (arguments.out / "algorithms.json").write_text(json.dumps(curves) + "\n")
    (arguments.out / "algorithms.md").write_text(table(curves))
    picture(curves, arguments.out / "algorithms.png")


def table(curves: dict[str, list[float]]) -> str:
    """Rewards at the start, after half of the iterations, and at the end."""
    length = len(next(iter(curves.values())))
    lines = [
        f"| algorithm | reward before | after {length // 2} iterations | after {length - 1} |",
        "|---|---|---|---|",
        *(
            f"| {name} | {values[0]:.2f} | {values[length // 2]:.2f} | {values[-1]:.2f} |"
            for name, values in curves.items()
        ),
    ]
    return "\n".join(lines) + "\n"


def picture(curves: dict[str, list[float]], path: Path) -> None:
    """One small panel per algorithm, all on one scale."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    columns = 4
    rows = -(-len(curves) // columns)
    figure, axes = pyplot.subplots(rows, columns, figsize=(11, 2.1 * rows), sharex=True, sharey=True, squeeze=False)
    for axis, (name, values) in zip(axes.flat, curves.items(), strict=False):
        axis.plot(values, linewidth=2, color="#2563eb")
        axis.set_title(name, fontsize=9, loc="left")
        axis.set_ylim(0, 1.05)
        axis.grid(alpha=0.25)
        axis.spines[["top", "right"]].set_visible(False)
    for axis in axes.flat[len(curves) :]:
        axis.set_visible(False)
    figure.supxlabel("iteration (128 rollouts, 2 optimizer steps)", fontsize=9)
    figure.supylabel("mean reward of sampled answers", fontsize=9)
    figure.tight_layout()
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    sys.exit(main())
