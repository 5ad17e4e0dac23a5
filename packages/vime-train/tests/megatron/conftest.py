"""Real ranks for the tests of this room: four processes over gloo, a tiny model, and one saved batch of rollouts."""

from __future__ import annotations

import itertools
import json
import os
import runpy
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
import pytest
import torch

from vime_schedule import TokenBudget, build_dp_schedule
from vime_train.algorithm import advantages, step_weights
from vime_train.config import RunConfig
from vime_train.rollout import Problem, RankBatch, Rollout, Sample, parallel_layout
from vime_train.rollout._assemble import cut

HERE = Path(__file__).parent
TIMEOUT_SECONDS = 120.0
MAX_RANKS = 4


class RankError(Exception):
    """A call failed on a rank; the text is `Type: message` of the error there."""


@dataclass
class Job:
    """Trainers on the first ranks of the pool, as one object: calls go to all of them, results come back by rank."""

    config: RunConfig
    connections: list[Connection]

    @property
    def world_size(self) -> int:
        return self.config.layout.world_size

    def call(self, name: str, *arguments: object, target: str = "trainer", **named: object) -> list[object]:
        """The same call on every rank."""
        return self._exchange(name, [(arguments, named)] * self.world_size, target)

    def call_batch(self, name: str, batches: Sequence[RankBatch], **named: object) -> list[object]:
        """A call that takes the batch of the rank's DP replica."""
        replica = self.config.layout.cp * self.config.layout.tp
        dp = self.config.layout.dp
        return self._exchange(
            name, [((batches[rank // replica % dp],), named) for rank in range(self.world_size)], "trainer"
        )

    def call_each(self, name: str, arguments: Sequence[object]) -> list[object]:
        """A call with another argument on each rank."""
        return self._exchange(name, [((argument,), {}) for argument in arguments], "trainer")

    def train(self, batches: Sequence[RankBatch], **named: object) -> list[dict[str, float]]:
        """Train on all ranks; the reports, which must be the same everywhere (as text: NaN equals NaN)."""
        reports = self.call_batch("train", batches, **named)
        assert len({repr(report) for report in reports}) == 1
        return reports[0]  # type: ignore[return-value]

    def close(self) -> None:
        self.call("close", target="rank")

    def _exchange(self, name: str, arguments: Sequence[object], target: str) -> list[object]:
        mine = self.connections[: self.world_size]
        for connection, given in zip(mine, arguments, strict=True):
            connection.send((target, name, given))
        answers = [self._receive(rank, connection, name) for rank, connection in enumerate(mine)]
        failures = [f"{result}" for ok, result in answers if not ok]
        if failures:
            raise RankError(" | ".join(failures))
        return [result for _, result in answers]

    def _receive(self, rank: int, connection: Connection, name: str) -> tuple[bool, object]:
        if not connection.poll(TIMEOUT_SECONDS):
            pytest.exit(f"rank {rank} did not answer {name} within {TIMEOUT_SECONDS:.0f} s", returncode=1)
        answer: tuple[bool, object] = connection.recv()
        return answer


@dataclass
class Ranks:
    """The pool of processes; one job at a time."""

    directory: Path
    connections: list[Connection]
    numbers: Iterator[int] = field(default_factory=itertools.count)

    def start(self, config: RunConfig, model_path: Path) -> Job:
        job = Job(config=config, connections=self.connections)
        store = self.directory / f"store-{next(self.numbers)}"
        arguments = [
            (
                (),
                {
                    "config": config,
                    "model_path": str(model_path),
                    "rank": rank,
                    "world_size": config.layout.world_size,
                    "init_method": f"file://{store}",
                },
            )
            for rank in range(config.layout.world_size)
        ]
        job._exchange("start", arguments, "rank")
        return job


@pytest.fixture(scope="session")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ranks]:
    directory = tmp_path_factory.mktemp("ranks")
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    pool = [_spawn(environment) for _ in range(MAX_RANKS)]
    connections = [connection for _, connection in pool]
    yield Ranks(directory=directory, connections=connections)
    for connection in connections:
        connection.close()
    for process, _ in pool:
        process.wait(timeout=TIMEOUT_SECONDS)


def _spawn(environment: dict[str, str]) -> tuple[subprocess.Popen[bytes], Connection]:
    """A rank's process and the connection to it, which breaks when the process dies."""
    mine, theirs = socket.socketpair()
    with theirs:
        process = subprocess.Popen(
            [sys.executable, str(HERE / "rank_process.py"), str(theirs.fileno())],
            env=environment,
            pass_fds=[theirs.fileno()],
        )
    return process, Connection(mine.detach())


@pytest.fixture
def start(ranks: Ranks, tiny_model: Callable[..., Path]) -> Iterator[Callable[..., Job]]:
    """Start a job on the tiny model with a layout and overrides; it is closed at the end of the test."""
    jobs: list[Job] = []

    def begin(config: RunConfig, model_path: Path | None = None) -> Job:
        for job in jobs:
            job.close()
        jobs[:] = [ranks.start(config, model_path or tiny_model())]
        return jobs[0]

    yield begin
    for job in jobs:
        job.call("repair", target="rank")
        job.close()


@pytest.fixture(scope="session")
def run_config() -> Callable[..., RunConfig]:
    """A run with a layout and overrides by section."""

    def make(layout: dict[str, int], **sections: object) -> RunConfig:
        return RunConfig.model_validate({"layout": {"dp": 1, **layout}, **sections})

    return make


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """A Hugging Face directory with a random model of four layers; one per set of arguments."""
    made: dict[tuple[object, ...], Path] = {}

    def make(family: str = "qwen3", *, tied: bool = False, llama3_rope: bool = False, **experts: object) -> Path:
        key = (family, tied, llama3_rope, *map(str, experts.items()))
        if key not in made:
            made[key] = tmp_path_factory.mktemp(f"{family}-model") / "model"
            _save_model(made[key], family, tied=tied, llama3_rope=llama3_rope, **experts)
        return made[key]

    return make


EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24, "norm_topk_prob": True}


def _save_model(directory: Path, family: str, *, tied: bool, llama3_rope: bool, **experts: object) -> None:
    import transformers

    sizes = {
        "vocab_size": 48,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "max_position_embeddings": 256,
        "initializer_range": 0.2,
        "tie_word_embeddings": tied,
    }
    if llama3_rope:
        sizes["rope_scaling"] = {
            "rope_type": "llama3",
            "factor": 4.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 64,
        }
    torch.manual_seed(0)
    name = {"qwen3": "Qwen3", "qwen3_moe": "Qwen3Moe", "llama": "Llama"}[family]
    if family == "qwen3_moe":
        sizes |= EXPERTS | experts
    kind, settings = getattr(transformers, f"{name}ForCausalLM"), getattr(transformers, f"{name}Config")
    model = kind(settings(**sizes))
    for parameter in model.parameters():
        if parameter.ndim == 1:  # norms start at 1, where a wrong mapping of them would not show
            torch.nn.init.uniform_(parameter, 0.5, 1.5)
    model.save_pretrained(directory)
    (directory / "tokenizer.json").write_text("{}")


@pytest.fixture(scope="session")
def rollouts() -> tuple[Rollout, ...]:
    """The saved batch: ragged lengths, siblings, masked tokens inside responses, and a fully masked sample."""
    records = json.loads((HERE / "rollouts.json").read_text())
    problem = Problem(problem_id="saved", prompt="", answer="", prompt_tokens=())
    return tuple(
        Rollout(
            rollout_id=record["rollout_id"],
            group_id=record["group_id"],
            problem=problem,
            reward=record["reward"],
            samples=tuple(
                Sample(
                    tokens=tuple(sample["tokens"]),
                    response_length=len(sample["loss_mask"]),
                    loss_mask=tuple(sample["loss_mask"]),
                    rollout_log_probs=tuple(sample["rollout_log_probs"]),
                    rollout_id=record["rollout_id"],
                    group_id=record["group_id"],
                    reward=record["reward"],
                    status="completed",
                    weight_version=0,
                )
                for sample in record["samples"]
            ),
        )
        for record in records
    )


@pytest.fixture(scope="session")
def plan_batches(rollouts: tuple[Rollout, ...]) -> Callable[..., tuple[RankBatch, ...]]:
    """One batch per DP rank of the saved rollouts, or of some of them, planned for a run's layout."""

    def make(
        config: RunConfig,
        *,
        steps: Sequence[int] | None = None,
        only: Sequence[Rollout] | None = None,
        budget: int = 96,
    ) -> tuple[RankBatch, ...]:
        chosen = rollouts if only is None else only
        samples = [sample for rollout in chosen for sample in rollout.samples]
        schedule = build_dp_schedule(
            [len(sample.tokens) for sample in samples],
            layout=parallel_layout(config.layout),
            batching=TokenBudget(max_tokens_per_gpu=budget),
            global_batch_size=list(steps or [len(chosen)]),
            rollout_ids=[sample.rollout_id for sample in samples],
            shortage="fill",
        )
        return cut(
            samples,
            advantages(chosen, config.algorithm),
            step_weights(schedule, samples, config.algorithm),
            schedule,
        )

    return make


@pytest.fixture(scope="session")
def read_weights() -> Callable[[Path], dict[str, np.ndarray]]:
    from safetensors.numpy import load_file

    return lambda directory: load_file(directory / "model.safetensors")


@pytest.fixture(scope="session")
def oracle_loss() -> Callable[..., torch.Tensor]:
    """`(model, rollouts, aggregation)` to the loss of one step, in the model's precision."""
    return runpy.run_path(str(HERE / "_oracle_loss.py"))["loss_of"]  # type: ignore[no-any-return]
