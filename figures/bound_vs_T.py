"""Bounds against the horizon at one token divergence, the papers' and ours.

The published comparison is at ``delta = 1e-4`` nats with ``K_seq = 0.01`` held fixed, read at
``T = 4096``. Nothing is computed here: the values come in a table.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from figures.style import style
from figures.sweep import (
    Curve,
    joined_titles,
    label_ends,
    log_axes,
    number_math,
    shade_vacuous,
)

#: Bounds drawn by default, from the papers and ours.
PAPER: Final = ("classical-kl", "coupling", "pinsker-marginal-kl", "mixed-kl")
OURS: Final = (
    "pinsker-marginal-kl-sharp",
    "mixed-kl-sharp",
    "cauchy-schwarz-means",
    "square-root",
    "martingale-chi2",
)
#: Shades of one hue each: warm for the papers', blue for ours.
_WARM: Final = ("#6e2c00", "#a04000", "#d35400", "#d98c4f")
_COOL: Final = ("#6fa3d8", "#4a8bc9", "#2e75b6", "#1f4e8c", "#0b2a55")
_DOTTED: Final = (0, (1, 1.3))


def bound_vs_T(
    table: pd.DataFrame, titles: dict[str, str] | None = None, marked: int = 4096
) -> Figure:
    """Draw ``table``.

    Args:
        table: tidy rows of a sweep at one combination of divergences (columns ``T``, ``bound``,
            ``value``, ``status``, ``owner`` and the given quantities).
        titles: bound name -> how to call it; the name itself where absent.
        marked: horizon at which values are marked and written, when the table has it.

    Returns:
        A figure with one log-log panel.
    """
    titles = titles or {}
    curves = [
        *_shaded(table, PAPER, _WARM, titles, marked),
        *_shaded(table, OURS, _COOL, titles, marked),
    ]
    with style():
        figure = Figure(figsize=(6.9, 4.3))
        axes = figure.add_axes((0.095, 0.2, 0.555, 0.72))
        log_axes(axes)
        low = min((float(c.value.min()) for c in curves), default=1e-3)
        high = max((float(c.value.max()) for c in curves), default=10.0)
        axes.set_ylim(10 ** math.floor(np.log10(low)), 10 ** (np.log10(high) + 0.2))
        shade_vacuous(axes)
        for curve in curves:
            axes.plot(curve.T, curve.value, color=curve.color, linestyle=curve.dash)
            at = np.flatnonzero(marked == curve.T)
            if at.size:
                axes.plot(marked, curve.value[at[0]], "o", color=curve.color, markersize=3.2)
        if any(np.any(marked == curve.T) for curve in curves):
            axes.axvline(marked, color="#333333", linewidth=0.7, linestyle=(0, (2, 2)), zorder=1)
            axes.annotate(
                f"$T = {marked}$",
                (marked, axes.get_ylim()[0]),
                xytext=(-3, 4),
                textcoords="offset points",
                fontsize=7,
                ha="right",
                va="bottom",
            )
        axes.set_xlabel("horizon $T$ (tokens)")
        axes.set_ylabel("bound on |Error| (reward units)")
        axes.set_title(_title(table), loc="left")
        label_ends(axes, curves)
        figure.legend(handles=_key(), loc="lower center", ncols=4, frameon=False, fontsize=7)
    return figure


def _shaded(
    table: pd.DataFrame,
    names: tuple[str, ...],
    shades: tuple[str, ...],
    titles: dict[str, str],
    marked: int,
) -> list[Curve]:
    found = []
    for name, shade in zip(names, shades, strict=True):
        rows = table[table["bound"] == name].sort_values("T")
        value = rows["value"].to_numpy(dtype=float)
        keep = np.isfinite(value) & (value > 0)
        if not keep.any():
            continue
        T, value = rows["T"].to_numpy(dtype=float)[keep], value[keep]
        rough = (rows["status"] == "approximation").any()
        at = np.flatnonzero(marked == T)
        note = f"\n{value[at[0]]:.4g} at $T = {marked}$" if at.size else ""
        label = joined_titles([titles.get(name, name)]) + note
        found.append(Curve(T, value, (name,), shade, _DOTTED if rough else "-", label))
    return found


def _title(table: pd.DataFrame) -> str:
    parts = []
    for name, symbol in (("kl_max", r"\delta"), ("kl_seq", r"K_\mathrm{seq}")):
        if name in table.columns:
            unit = " nats" if name == "kl_max" else " fixed"
            parts.append(f"${symbol} = {number_math(float(table[name].iloc[0]))}${unit}")
    return ", ".join(parts)


def _key() -> list[object]:
    return [
        Line2D([], [], color=_WARM[1], label="papers"),
        Line2D([], [], color=_COOL[3], label="ours"),
        Line2D([], [], color="#333333", linestyle=_DOTTED, label="uses $x = 2\\delta$ (approx.)"),
        Patch(color="#d9a441", alpha=0.2, label="vacuous: above 1"),
    ]
