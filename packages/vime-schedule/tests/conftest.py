"""Hypothesis settings of all tests: no deadlines on shared machines, and VIME_EXAMPLES for longer searches."""

from __future__ import annotations

import os

from hypothesis import settings

settings.register_profile("vime", deadline=None, max_examples=int(os.environ.get("VIME_EXAMPLES", "100")))
settings.load_profile("vime")
