"""How much memory does a trainer rank take, against what `vime-train plan` predicts?

    python packages/vime-train/benchmarks/bench_memory.py [small] [experts] [middle] [--json FILE]

One rank over gloo in a process of its own, no Ray: it makes a model, trains two iterations of equally long samples and
writes the model, while a thread watches its resident memory. Beside the peak, what autograd keeps of one forward pass
is counted by its saved tensors, each storage once. `middle` takes half a minute on one core and 4 GiB.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

MIDDLE = {
    "hidden_size": 512,
    "intermediate_size": 1536,
    "num_hidden_layers": 8,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 64,
    "max_position_embeddings": 1024,
}
EXPERTS = {"num_experts": 8, "num_experts_per_tok": 2}
CASES: dict[str, dict[str, Any]] = {
    "small": {"model": {}, "vocab_size": 64, "length": 100, "samples": 40},
    "experts": {"model": EXPERTS, "vocab_size": 64, "length": 100, "samples": 40},
    "middle": {"model": MIDDLE, "vocab_size": 8192, "length": 256, "samples": 16},
}
PAGE_BYTES = 4096
"""Of Linux on x86 and most others; the unit of /proc/self/statm."""


def resident() -> int:
    """Bytes of this process in memory now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE_BYTES


@contextlib.contextmanager
def watched(peak: list[int]) -> Iterator[None]:
    """Keep the largest resident memory of the block in `peak`."""
    over = threading.Event()

    def look() -> None:
        while not over.is_set():
            peak[0] = max(peak[0], resident())
            time.sleep(0.005)

    watcher = threading.Thread(target=look)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()


def measure(name: str) -> dict[str, float]:
    """One case, in this process."""
    import torch

    from vime_train.cli._memory import activation_numbers, largest_micro_batch, total, trainer_memory
    from vime_train.config import RunConfig
    from vime_train.data import CharTokenizer, hf_config, make_model, weight_shapes
    from vime_train.megatron import Trainer, _schedule
    from vime_train.rollout import Sample, plan
    from vime_train.rollout._assemble import cut

    torch.set_num_threads(1)
    case = CASES[name]
    config = RunConfig.model_validate({"layout": {"dp": 1}, "model": case["model"]})
    tokenizer = CharTokenizer(alphabet="ab", vocab_size=case["vocab_size"])
    rng, length, count = np.random.default_rng(0), case["length"], case["samples"]
    response = length - 8
    samples = [
        Sample(
            tokens=tuple(rng.integers(2, case["vocab_size"], length).tolist()),
            response_length=response,
            loss_mask=(1,) * response,
            rollout_log_probs=(-1.0,) * response,
            rollout_id=place,
            group_id=place // 2,
            reward=float(place % 2),
            status="completed",
            weight_version=0,
        )
        for place in range(count)
    ]
    schedule = plan(samples, config, global_batch_sizes=[count])
    advantages = [np.full(response, 0.1, np.float32)] * count
    (batch,) = cut(samples, advantages, np.full(count, 1 / count / response), schedule)
    weights, model = weight_shapes(config.model, case["vocab_size"]), hf_config(config.model, tokenizer)
    saved: dict[int, int] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        saved[storage.data_ptr()] = storage.nbytes()
        return tensor

    forward = _schedule._forward

    def counted(*arguments: Any) -> Any:
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            return forward(*arguments)

    peak = [0]
    with tempfile.TemporaryDirectory() as directory, watched(peak):
        make_model(f"{directory}/model", config.model, tokenizer, seed=0)
        store = f"file://{directory}/store"
        with Trainer(config, model_path=f"{directory}/model", rank=0, world_size=1, init_method=store) as trainer:
            trainer.train(batch)
            trainer.train(batch)
            trainer.export(f"{directory}/export")
            measured = peak[0]
            _schedule._forward = counted  # type: ignore[assignment]
            trainer.train(batch)
    items = trainer_memory(config, weights, model, schedule)
    activations = next(item.count for item in items if item.name == "activations")
    parameters = next(item.count for item in items if item.name == "weights")
    return {
        "tokens": largest_micro_batch(config, schedule),
        "numbers_per_token_and_layer": activation_numbers(config, model),
        "predicted_mib": total(items) / 2**20,
        "peak_mib": measured / 2**20,
        "peak_ratio": measured / total(items),
        "activations_mib": activations / 2**20,
        "activations_ratio": (sum(saved.values()) - parameters) / activations,
    }


def main() -> None:
    """Measure the cases, each in a process of its own, and print them as a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", default=list(CASES), help="of small, experts, middle")
    parser.add_argument("--json", help="write the figures to this file")
    parser.add_argument("--here", action="store_true", help="measure in this process, and print JSON")
    arguments = parser.parse_args()
    if arguments.here:
        print(json.dumps(measure(arguments.cases[0])))
        return
    found = {}
    for name in arguments.cases:
        command = [sys.executable, "-W", "ignore", __file__, "--here", name]
        found[name] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    print("| case | tokens | predicted | measured peak | measured / predicted | activations saved / predicted |")
    print("|---|---|---|---|---|---|")
    for name, figures in found.items():
        print(
            f"| {name} | {figures['tokens']:.0f} | {figures['predicted_mib']:.0f} MiB "
            f"| {figures['peak_mib']:.0f} MiB | {figures['peak_ratio']:.2f} | {figures['activations_ratio']:.2f} |"
        )
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
