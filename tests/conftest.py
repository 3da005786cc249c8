"""Shared set-up: deterministic hypothesis runs and a non-interactive matplotlib."""

from __future__ import annotations

import matplotlib
from hypothesis import settings

matplotlib.use("Agg")
settings.register_profile("default", deadline=None, derandomize=True, max_examples=60)
settings.load_profile("default")
