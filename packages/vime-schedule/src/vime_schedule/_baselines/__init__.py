"""Well-known simple planners, written from their description, to compare with on the same samples.

Laws
- Every baseline runs each sample once, and the same legal number of micro-batches on every rank.
- First-fit baselines keep the token budget. Karmarkar-Karp does not look at it: count what exceeds it.
"""

from __future__ import annotations

from vime_schedule._baselines._first_fit import arrival_first_fit, first_fit_decreasing
from vime_schedule._baselines._karmarkar_karp import two_level_karmarkar_karp

__all__ = ["arrival_first_fit", "first_fit_decreasing", "two_level_karmarkar_karp"]
