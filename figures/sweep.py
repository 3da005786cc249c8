"""The sweep's figure: bounds against T on log-log axes, fitted slopes beside derived orders.

Nothing is computed here: values, slopes and orders come in tables.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

import numpy as np
import pandas as pd
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import LogLocator

from bounds.quantities import QUANTITIES
from figures.style import style

#: One colour per family; warm and neutral for the papers', blue and green for ours.
FAMILIES: Final[dict[str, str]] = {
    "classical": "#6b6b6b",
    "pinsker-marginal": "#c1440e",
    "mixed": "#e08e0b",
    "coupling": "#8c564b",
    "adaptive": "#b5568f",
    "martingale": "#1b6fb3",
    "square-root": "#0b8a5f",
    "cauchy-schwarz": "#5b51b5",
    "unified": "#111111",
}
_OTHER: Final = "#444444"
#: Curves closer than this, relative, on the whole panel are drawn once.
_SAME: Final = 5e-3
#: Decades shown above and below the reward range at most.
_DECADES: Final = (-6.0, 4.5)
_LABEL_POINTS: Final = 6.6
_PANEL: Final = (5.7, 3.9)


@dataclass(frozen=True)
class Curve:
    """One drawn line. ``T``, ``value``: float64 ``[m]``; ``members``: the bounds it stands for."""

    T: np.ndarray
    value: np.ndarray
    members: tuple[str, ...]
    color: str
    dash: Any
    label: str


def family(name: str) -> str:
    """The family of a bound, by its registry name."""
    return next((key for key in FAMILIES if name.startswith(key)), name)


def drawn_bounds(slopes: pd.DataFrame, chosen: Sequence[str] = ()) -> list[str]:
    """Bounds to draw: ``chosen``, or else the full forms, the papers' and ours, without minima."""
    if chosen:
        return [name for name in dict.fromkeys(chosen) if name in set(slopes["bound"])]
    full = slopes[(slopes["form"] == "full") & (slopes["role"] == "bound")]
    found = list(dict.fromkeys(full["bound"]))
    return found or list(dict.fromkeys(slopes["bound"]))


def sweep_figure(table: pd.DataFrame, slopes: pd.DataFrame, bounds: Sequence[str] = ()) -> Figure:
    """Draw ``table``.

    Args:
        table: tidy rows of a sweep (columns ``T``, ``bound``, ``value``, ``status`` and the other
            swept quantities). Where several quantities besides ``kl_max`` vary, their first
            combination is drawn and the title says which.
        slopes: slopes and orders, from the same sweep.
        bounds: names to draw; see :func:`drawn_bounds`.

    Returns:
        A figure with one panel per value of ``kl_max``.
    """
    names = drawn_bounds(slopes, bounds)
    others = [c for c in QUANTITIES if c in table.columns and c != "T"]
    fixed = {name: table[name].iloc[0] for name in others if name != "kl_max"}
    table = _at(table, fixed)
    panels = sorted(table["kl_max"].unique()) if "kl_max" in others else [None]
    columns = 1 if len(panels) == 1 else 2
    rows = -(-len(panels) // columns)
    with style():
        figure = Figure(figsize=(_PANEL[0] * columns, _PANEL[1] * rows + 0.75))
        grid = figure.add_gridspec(
            rows,
            columns,
            wspace=0.98,
            hspace=0.3,
            left=0.15 / columns,
            right=1 - 0.42 / columns,
            top=1 - 0.33 / (_PANEL[1] * rows + 0.75),
            bottom=0.98 / (_PANEL[1] * rows + 0.75),
        )
        for i, kl in enumerate(panels):
            axes = figure.add_subplot(grid[i // columns, i % columns])
            here = fixed if kl is None else {"kl_max": kl, **fixed}
            curves = _curves(_at(table, here), _at(slopes, here), names)
            log_axes(axes)
            limits = _limits(curves)
            axes.set_ylim(*limits)
            shade_vacuous(axes)
            for curve in curves:
                axes.plot(
                    curve.T,
                    curve.value,
                    color=curve.color,
                    linestyle=curve.dash,
                    marker="o" if curve.T.size == 1 else None,
                    clip_on=True,
                )
            label_ends(axes, curves)
            axes.set_title(_title(here), loc="left")
            if i % columns == 0:
                axes.set_ylabel("bound on |Error| (reward units)")
            if i + columns >= len(panels):
                axes.set_xlabel("horizon $T$ (tokens)")
        if len(panels) < rows * columns:
            spare = figure.add_subplot(grid[rows - 1, columns - 1])
            spare.set_axis_off()
            spare.legend(handles=_key(), loc="center left", frameon=False)
        else:
            figure.legend(
                handles=_key(),
                loc="lower center",
                ncols=4 if columns > 1 else 2,
                frameon=False,
                fontsize=_LABEL_POINTS + 0.6,
            )
    return figure


def save(figure: Figure, target: Path | IO[bytes], kind: str) -> None:
    """Write ``figure`` as ``kind`` (png, pdf or svg); the same input gives the same bytes."""
    metadata = {"pdf": {"CreationDate": None}, "svg": {"Date": None}}.get(kind, {})
    with style(), rc_context({"svg.hashsalt": "trust-bounds"}):
        figure.savefig(target, format=kind, metadata=metadata, dpi=200)


def log_axes(axes: Axes) -> None:
    """Log-log axes with decade ticks."""
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(numticks=15))


def shade_vacuous(axes: Axes) -> None:
    """A line at the reward range, 1, and light shading above it."""
    axes.axhline(1.0, color="#333333", linewidth=0.8, zorder=1)
    axes.axhspan(
        1.0, max(axes.get_ylim()[1], 10.0), color="#d9a441", alpha=0.09, zorder=0, linewidth=0
    )


def label_ends(axes: Axes, curves: Sequence[Curve], lines: int = 2) -> None:
    """Write each curve's label right of the panel, spread so that none overlap."""
    if not curves:
        return
    low, high = np.log(axes.get_ylim())
    ends = []
    for curve in curves:
        inside = np.flatnonzero(np.log(curve.value) <= high)
        last = inside[-1] if inside.size else curve.T.size - 1
        top = min(float(np.log(curve.value[last])), high)
        ends.append(((top - low) / (high - low), curve.T[last]))
    figure = axes.get_figure(root=True)
    assert figure is not None
    box = axes.get_position()
    height = box.height * figure.get_size_inches()[1] * 72
    # a label is centred at its place, so keep half of it inside at both ends
    gap = _LABEL_POINTS * 1.2 * lines * 1.12 / height
    places = spread([end for end, _ in ends], gap, -0.02, 1.02)
    x_low, x_high = np.log(axes.get_xlim())
    for curve, (end, horizon), place in zip(curves, ends, places, strict=True):
        x_end = (np.log(horizon) - x_low) / (x_high - x_low)
        axes.plot(
            [x_end, 1.0, 1.045],
            [end, end if x_end > 0.9 else place, place],
            transform=axes.transAxes,
            color=curve.color,
            linewidth=0.5,
            alpha=0.55,
            clip_on=False,
            zorder=1,
            label="_leader",
        )
        axes.text(
            1.055,
            place,
            curve.label,
            transform=axes.transAxes,
            color=curve.color,
            fontsize=_LABEL_POINTS,
            va="center",
            linespacing=1.15,
        )


def spread(wanted: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Places at least ``gap`` apart, close to ``wanted``, within ``[low, high]`` when they fit."""
    order = np.argsort(wanted, kind="stable")
    gap = min(gap, (high - low) / max(len(wanted) - 1, 1))
    # blocks of touching labels, each centred on the mean of what its members want
    blocks: list[tuple[float, int]] = []
    for index in order:
        centre, count = float(wanted[index]), 1
        while blocks and centre - gap * (count - 1) / 2 < (
            blocks[-1][0] + gap * (blocks[-1][1] - 1) / 2 + gap
        ):
            other, size = blocks.pop()
            centre = (centre * count + other * size) / (count + size)
            count += size
        half = gap * (count - 1) / 2
        blocks.append((min(max(centre, low + half), high - half), count))
    sorted_places = [c + gap * (k - (n - 1) / 2) for c, n in blocks for k in range(n)]
    for k in range(len(sorted_places) - 2, -1, -1):  # clamping may have pushed blocks together
        sorted_places[k] = min(sorted_places[k], sorted_places[k + 1] - gap)
    places = [0.0] * len(order)
    for index, place in zip(order, sorted_places, strict=True):
        places[index] = place
    return places


def order_math(order: str) -> str:
    """An order in T such as ``T^(3/2)`` as mathtext."""
    text = re.sub(r"\^\(([^()]*)\)", r"^{\1}", order)
    text = re.sub(r"\^(\d+)", r"^{\1}", text)
    text = re.sub(r"\bexp\b", r"\\exp", text).replace("sqrt", r"\sqrt").replace("*", r"\,")
    return f"${text}$" if text else ""


def _at(frame: pd.DataFrame, fixed: dict[str, Any]) -> pd.DataFrame:
    for name, value in fixed.items():
        frame = frame[frame[name] == value]
    return frame


def _title(fixed: dict[str, Any]) -> str:
    return ", ".join(f"${QUANTITIES[name].latex} = {number_math(v)}$" for name, v in fixed.items())


def number_math(value: float) -> str:
    """A number as mathtext, powers of ten written out."""
    if value == 0 or 1e-2 <= abs(value) < 1e4:
        return f"{value:g}"
    mantissa, _, exponent = f"{value:.6e}".partition("e")
    mantissa = f"{float(mantissa):g}"
    power = f"10^{{{int(exponent)}}}"
    return power if mantissa == "1" else rf"{mantissa} \times {power}"


def _curves(table: pd.DataFrame, slopes: pd.DataFrame, names: Iterable[str]) -> list[Curve]:
    series: list[tuple[list[str], np.ndarray, np.ndarray]] = []
    for name in names:
        rows = table[table["bound"] == name].sort_values("T")
        keep = np.isfinite(rows["value"]) & (rows["value"] > 0)
        T, value = rows["T"].to_numpy(float)[keep], rows["value"].to_numpy(float)[keep]
        if not T.size:
            continue
        for members, other_T, other in series:
            if np.array_equal(T, other_T) and np.allclose(value, other, rtol=_SAME, atol=0):
                members.append(name)
                break
        else:
            series.append(([name], T, value))
    by_name = slopes.set_index("bound")
    return [_curve(tuple(members), T, value, by_name) for members, T, value in series]


def _curve(
    members: tuple[str, ...], T: np.ndarray, value: np.ndarray, slopes: pd.DataFrame
) -> Curve:
    first = slopes.loc[members[0]]
    status = {slopes.loc[name, "status"] for name in members}
    dash: Any = "-"
    if "approximation" in status:
        dash = (0, (1, 1.3))
    elif first["form"] == "small":
        dash = (0, (4, 1.8))
    orders = list(dict.fromkeys(str(slopes.loc[name, "order"]) for name in members))
    order = "; ".join(" → ".join(order_math(p) for p in o.split(" → ")) for o in orders if o)
    slope = "" if np.isnan(first["slope"]) else f"fitted slope {first['slope']:.2f}"
    derived = f"derived {order}" if order else ""
    note = f"{slope} ({derived})" if slope and derived else slope or derived
    title = joined_titles([str(slopes.loc[name, "title"]) for name in members])
    color = FAMILIES.get(family(members[0]), _OTHER)
    return Curve(T, value, members, color, dash, f"{title}\n{note}" if note else title)


def joined_titles(titles: Sequence[str]) -> str:
    """``Classical (TV)`` and ``Classical (KL)`` as ``Classical (TV, KL)``."""
    variants: dict[str, list[str]] = {}
    for title in titles:
        match = re.fullmatch(r"(.*) \((KL|TV)\)(.*)", title)
        base, variant = (match[1] + match[3], match[2]) if match else (title, "")
        variants.setdefault(base, []).append(variant)
    return " = ".join(
        f"{base} ({', '.join(v for v in found if v)})" if any(found) else base
        for base, found in variants.items()
    )


def _limits(curves: Sequence[Curve]) -> tuple[float, float]:
    if not curves:
        return 10.0 ** _DECADES[0], 10.0 ** _DECADES[1]
    low = min(float(curve.value.min()) for curve in curves)
    high = max(float(curve.value.max()) for curve in curves)
    bottom, top = np.log10(min(low, 0.5)), np.log10(max(high, 3.0))
    return 10.0 ** max(bottom - 0.15, _DECADES[0]), 10.0 ** min(top + 0.15, _DECADES[1])


def _key() -> list[Any]:
    return [
        Line2D([], [], color="#333333", linestyle="-", label="certified bound"),
        Line2D([], [], color="#333333", linestyle=(0, (4, 1.8)), label="small-divergence form"),
        Line2D(
            [],
            [],
            color="#333333",
            linestyle=(0, (1, 1.3)),
            label="approximated input (not a guarantee)",
        ),
        Patch(color="#d9a441", alpha=0.2, label="vacuous: above the reward range, 1"),
    ]
