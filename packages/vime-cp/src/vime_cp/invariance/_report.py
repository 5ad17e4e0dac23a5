"""What a check found, as values and as a table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ._case import Case
    from ._laws import Law


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """The smallest case found for which a law does not hold, and what was seen there."""

    case: Case
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LawResult:
    """How a law fared: random cases tried, and the failure if there was one."""

    law: Law
    examples: int
    failure: Failure | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """One result per law that was examined; prints as a table followed by the failures."""

    results: tuple[LawResult, ...]

    @property
    def holds(self) -> bool:
        """Whether every law held."""
        return all(result.failure is None for result in self.results)

    def failure(self, name: str) -> Failure | None:
        """The failure of the law of that name; None if it held.

        Raises:
            ValueError: no such law was examined.
        """
        for result in self.results:
            if result.law.name == name:
                return result.failure
        raise ValueError(f"no law {name!r} was examined: give one of {[r.law.name for r in self.results]}")

    def __str__(self) -> str:
        width = max(len(result.law.name) for result in self.results)
        lines = [f"{'law':<{width}}  holds  cases  meaning"]
        for result in self.results:
            verdict = "yes" if result.failure is None else "NO"
            lines.append(f"{result.law.name:<{width}}  {verdict:<5}  {result.examples:>5}  {result.law.meaning}")
        for result in self.results:
            if result.failure is not None:
                case = "\n".join(f"  {line}" for line in str(result.failure.case).splitlines())
                lines.append(f"\n{result.law.name}: {result.failure.text}\n{case}")
        return "\n".join(lines)
