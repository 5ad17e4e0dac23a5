"""Further sets of problems that a run is measured on, each with its own source, sampling and pass@k.

Always true: the sets are loaded once, before anything starts, with the tokenizer of the model that is trained; their
answers are scored by their own source; no figure is of no problem, and no prompt of theirs is too long.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from vime_train.config import DataSection, RolloutSection
from vime_train.data import DataError, load_source
from vime_train.rollout._check import check_problems
from vime_train.rollout._score_split import score_split, split_figures

if TYPE_CHECKING:
    from vime_train.config import EvaluationSet, RunConfig
    from vime_train.data import DataSource
    from vime_train.engine import Engine
    from vime_train.rollout._samples import Problem


class EvaluationSets:
    """The sets of `evaluation.sets`.

    Raises:
        DataError: when made, if a source cannot be loaded or has no problem in the split; the main one's
            `evaluation.split` included.
        RolloutError: when made, if a source gives a prompt that is too long.
    """

    def __init__(self, config: RunConfig, source: DataSource) -> None:
        section = config.evaluation
        if section.problems:
            _problems("evaluation", config.data.source, source, section.split, section.problems, config)
        self._config = config.model_copy(update={"rollout": _own_scores(config.rollout)})
        self._sets = {name: _load(name, one, config, source) for name, one in config.evaluation.sets.items()}

    def evaluate(self, engine: Engine) -> dict[str, float]:
        """`eval/NAME/score`, `mean_length`, `truncated`, and `pass@k` for sets with several answers per problem."""
        figures: dict[str, float] = {}
        for name, (source, problems) in self._sets.items():
            one = self._config.evaluation.sets[name]
            scored = score_split(
                engine,
                source,
                self._config,
                problems,
                samples=one.samples,
                temperature=one.temperature,
                top_p=one.top_p,
            )
            found = split_figures(scored, solved_score=self._config.rollout.solved_score)
            figures |= {f"eval/{name}/{figure}": value for figure, value in found.items()}
        return figures


def _own_scores(section: RolloutSection) -> RolloutSection:
    return section.model_copy(update={"reward": None, "group_reward": None, "reward_url": None})


def _load(name: str, one: EvaluationSet, config: RunConfig, main: DataSource) -> tuple[DataSource, list[Problem]]:
    section = DataSection(source=one.source, options=one.options, max_prompt_tokens=config.data.max_prompt_tokens)
    source = load_source(section, tokenizer=main.tokenizer)
    return source, _problems(f"evaluation.sets.{name}", one.source, source, one.split, one.problems, config)


def _problems(
    key: str, path: str, source: DataSource, split: Literal["held_out", "validation"], count: int, config: RunConfig
) -> list[Problem]:
    """Up to `count` problems of a split, at least one of them, and none too long."""
    problems = source.held_out(count) if split == "held_out" else source.validation(count)
    if not problems:
        raise DataError(
            f"{key}: {path} has no problem in its split {split}: give it some, name the other split, or ask for none "
            "(evaluation.problems = 0, no evaluation.sets)."
        )
    check_problems(problems, path, count=len(problems), max_prompt_tokens=config.data.max_prompt_tokens)
    return problems
