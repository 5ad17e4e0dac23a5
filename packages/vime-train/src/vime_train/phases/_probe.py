"""A few answers sampled right after a sync, for its check, where the rollouts to train on are of older weights.

Always true: every engine answers `_PER_ENGINE` prompts; what is asked is a function of the seed and of the version.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vime_train.engine import GenerationRequest
from vime_train.rollout import answered

if TYPE_CHECKING:
    from vime_train.cluster import EnginePool
    from vime_train.config import RunConfig
    from vime_train.data import DataSource
    from vime_train.rollout import Sample

_PER_ENGINE = 8
_MAX_NEW_TOKENS = 32


def probe(engines: EnginePool, source: DataSource, config: RunConfig, *, version: int) -> list[Sample]:
    """Answers to the first training problems under the weights that the engines hold, called `version`."""
    section = config.rollout
    problems = source.problems(_PER_ENGINE * config.engine.engines, seed=config.seed, start=0)
    requests = [
        GenerationRequest(
            prompt_tokens=problem.prompt_tokens,
            num_samples=1,
            temperature=section.temperature,
            top_p=section.top_p,
            max_new_tokens=min(section.max_new_tokens, _MAX_NEW_TOKENS),
            stop_token_ids=source.stop_token_ids,
            seed=config.seed + version * len(problems) + place,
        )
        for place, problem in enumerate(problems)
    ]
    answers = [completions[0] for completions in engines.generate(requests)]
    pairs = enumerate(zip(problems, answers, strict=True))
    return [answered(problem, answer, position=place) for place, (problem, answer) in pairs]
