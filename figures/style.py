"""The look that all figures share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import matplotlib as mpl

#: Colour-blind safe (Okabe-Ito), by who a bound comes from, plus the Oracle and muted ink.
PALETTE: Final[dict[str, str]] = {
    "paper": "#D55E00",
    "ours": "#0072B2",
    "oracle": "#009E73",
    "ink": "#222222",
    "muted": "#8A8A8A",
    "vacuous": "#F3E9E4",
}

_RC: Final[Any] = {
    "figure.dpi": 150,
    "savefig.dpi": 200,
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "axes.titlesize": 9.5,
    "axes.titlelocation": "left",
    "axes.titleweight": "bold",
    "axes.labelsize": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#444444",
    "axes.linewidth": 0.8,
    "axes.axisbelow": True,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "xtick.color": "#444444",
    "ytick.color": "#444444",
    "grid.color": "#E3E3E3",
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "legend.fontsize": 8,
    "lines.linewidth": 1.6,
    "svg.hashsalt": "trust-bounds",
}


@contextmanager
def style() -> Iterator[None]:
    """Matplotlib settings of the project, for the block; the caller's own come back after it."""
    with mpl.rc_context(_RC):
        yield
