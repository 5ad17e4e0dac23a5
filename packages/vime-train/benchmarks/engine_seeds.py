"""What it costs that every completion has a random generator of its own: tokens per second with and without.

    python benchmarks/engine_seeds.py

vLLM draws the noise of an unseeded batch at once, and row by row for seeded sequences. Seeds make a completion a
function of its request alone, which is what lets a resumed run repeat the numbers of the one that was killed.
"""

from __future__ import annotations

import os
import tempfile
import time
from statistics import median

from vime_train.cluster import engine_environment
from vime_train.config import EngineSection, ModelSection
from vime_train.data import CharTokenizer, make_model
from vime_train.data.arithmetic import ALPHABET
from vime_train.engine import spread_seed

PROMPTS, SAMPLES, NEW_TOKENS, REPEATS = 32, 16, 64, 7


def tokens_per_second(llm: object, *, seeded: bool, offset: int) -> float:
    """One batch of the shipped demo's size."""
    from vllm import SamplingParams

    params = [
        SamplingParams(
            n=SAMPLES,
            max_tokens=NEW_TOKENS,
            logprobs=0,
            flat_logprobs=True,
            detokenize=False,
            ignore_eos=True,
            seed=spread_seed(offset + index) if seeded else None,
        )
        for index in range(PROMPTS)
    ]
    prompts = [{"prompt_token_ids": [2, 3, 4, 5 + index]} for index in range(PROMPTS)]
    start = time.perf_counter()
    llm.generate(prompts, params, use_tqdm=False)  # type: ignore[attr-defined]
    return PROMPTS * SAMPLES * NEW_TOKENS / (time.perf_counter() - start)


def main() -> None:
    """Alternate the two, so that both see the same machine."""
    os.environ.update(engine_environment(EngineSection(), local=True))
    with tempfile.TemporaryDirectory() as model:
        make_model(model, ModelSection(), CharTokenizer(alphabet=ALPHABET), seed=0)
        from vllm import LLM

        llm = LLM(
            model=model,
            dtype="float32",
            max_model_len=96,
            max_num_seqs=512,
            enforce_eager=True,
            skip_tokenizer_init=True,
            enable_prefix_caching=False,
            distributed_executor_backend="uni",
            use_tqdm_on_load=False,
        )
    rates: dict[bool, list[float]] = {True: [], False: []}
    for repeat in range(REPEATS):
        for seeded in (True, False):
            rates[seeded].append(tokens_per_second(llm, seeded=seeded, offset=1000 * repeat))
    seeded, shared = median(rates[True][1:]), median(rates[False][1:])
    print(f"seeded {seeded:,.0f} tokens/s, one generator for all {shared:,.0f}: ratio {seeded / shared:.3f}")


if __name__ == "__main__":
    main()
