"""The audit figure: what was measured on a log, and every bound at it. Computes nothing."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from figures.style import PALETTE, style


def audit_figure(
    curves: Mapping[str, pd.DataFrame],
    bounds: pd.DataFrame,
    oracle: tuple[float, float, float],
    title: str,
    confidence: float = 0.95,
    exact_rows: bool = True,
    certificate: float | None = None,
) -> Figure:
    """Four panels: KL by position, log ratios, mismatch against p, bound ladder.

    Args:
        curves: tables ``position`` (t, kl_mean, low, high, kl_max), ``log_ratio`` (left, right,
            count) and ``mismatch`` (p, mismatch, low, high, tokens).
        bounds: one row a bound: name, owner, form, value, low, high, status.
        oracle: value and interval, reward units.
        title: of the whole figure.
        confidence: level of all intervals.
        exact_rows: whether divergences come from full rows.
        certificate: upper confidence bound on the Oracle at level ``confidence``, if any.
    """
    with style():
        figure = Figure(figsize=(11.5, 7.2), layout="constrained")
        left, right = figure.subfigures(1, 2, squeeze=False, width_ratios=(1, 1.12))[0]
        axes = left.subplots(3, 1)
        _position(axes[0], curves["position"], confidence, exact_rows)
        _histogram(axes[1], curves["log_ratio"])
        _mismatch(axes[2], curves["mismatch"], confidence)
        _ladder(right.subplots(), bounds, oracle, confidence, certificate)
        figure.suptitle(title, x=0.01, ha="left", fontsize=11, fontweight="bold")
    return figure


def _position(axes: Axes, table: pd.DataFrame, confidence: float, exact_rows: bool) -> None:
    colour = PALETTE["ours"]
    axes.fill_between(table["t"], table["low"], table["high"], color=colour, alpha=0.25, lw=0,
                      label=f"{confidence:.0%} bootstrap interval")  # fmt: skip
    axes.plot(table["t"], table["kl_mean"], color=colour, lw=1.2, label="mean over sequences")
    axes.plot(table["t"], table["kl_max"], ".", ms=2.5, color=PALETTE["muted"],
              label="largest visited")  # fmt: skip
    axes.set_yscale("log")
    positive = table.loc[table["kl_mean"] > 0, "kl_mean"]
    if len(positive):
        axes.set_ylim(positive.min() / 3, max(float(table["kl_max"].max()) * 4, positive.max() * 2))
    how = "full rows" if exact_rows else "k3, sampled tokens"
    axes.set(xlabel="position t", ylabel="nats", title=f"KL(roll ‖ θ) by position ({how})")
    axes.grid(True, axis="y")
    axes.legend(ncol=3, loc="upper left", handlelength=1.2, columnspacing=1.0)


def _histogram(axes: Axes, table: pd.DataFrame) -> None:
    axes.bar(
        table["left"],
        table["count"],
        width=table["right"] - table["left"],
        align="edge",
        color=PALETTE["ours"],
        alpha=0.85,
    )
    axes.axvline(0, color=PALETTE["ink"], lw=0.8)
    axes.set_yscale("log")
    axes.set_ylim(bottom=0.7)
    axes.set(xlabel="log ρ = log πθ − log πroll, nats", ylabel="tokens", title="Token log ratios")


def _mismatch(axes: Axes, table: pd.DataFrame, confidence: float) -> None:
    errors = np.abs(
        np.vstack([table["mismatch"] - table["low"], table["high"] - table["mismatch"]])
    )
    axes.errorbar(
        table["p"],
        table["mismatch"],
        yerr=errors,
        fmt="o",
        ms=4,
        color=PALETTE["ours"],
        capsize=2,
        label=f"mean |log ρ|, {confidence:.0%} interval",
    )
    first = table.iloc[0]
    grid = np.linspace(0, 1, 50)
    axes.plot(
        grid,
        first["mismatch"] * (1 - grid) / (1 - first["p"]),
        "--",
        lw=1,
        color=PALETTE["muted"],
        label="(1 − p) law through the first bin",
    )
    axes.set(xlabel="p = πroll(token)", ylabel="nats", title="Log-prob mismatch against p")
    axes.set_xlim(0, 1)
    axes.set_ylim(bottom=0)
    axes.legend(loc="upper right")


def _ladder(
    axes: Axes,
    bounds: pd.DataFrame,
    oracle: tuple[float, float, float],
    confidence: float,
    certificate: float | None,
) -> None:
    shown = bounds[bounds["value"].notna() & ~bounds["name"].str.contains("-small")]
    shown = shown[np.isfinite(shown["value"].astype(float)) & (shown["value"] > 0)]
    shown = shown.sort_values("value", ascending=False).reset_index(drop=True)
    y = np.arange(len(shown))
    top = max(float(shown["value"].max()), certificate or 0.0) * 3
    bottom = min(max(oracle[1], 1e-12), float(shown["value"].min())) / 2
    axes.axvspan(1, top, color=PALETTE["vacuous"], lw=0, zorder=0)
    axes.axvspan(max(oracle[1], 1e-12), oracle[2], color=PALETTE["oracle"], alpha=0.25, lw=0)
    axes.axvline(oracle[0], color=PALETTE["oracle"], lw=1.4)
    for owner in ("paper", "ours"):
        rows = shown[shown["owner"] == owner]
        value = rows["value"].astype(float)
        axes.errorbar(
            value,
            y[rows.index],
            xerr=np.nan_to_num(np.abs(np.vstack([value - rows["low"], rows["high"] - value]))),
            fmt="o",
            ms=5,
            color=PALETTE[owner],
            elinewidth=1.2,
            capsize=2,
            label="TRM paper" if owner == "paper" else "ours",
        )
    axes.set_xscale("log")
    axes.set_xlim(bottom, top)
    axes.set_yticks(y, list(shown["name"]))
    axes.set_ylim(-0.8, len(shown) - 0.2)
    axes.grid(True, axis="x")
    axes.set(xlabel="bound on |Error|, reward units",
             title="Bounds at the measured divergences (estimates)")  # fmt: skip
    axes.text(1.15, -0.45, "vacuous", color="#9A6B55", fontsize=8, va="center")
    axes.plot([], [], color=PALETTE["oracle"], lw=5, alpha=0.4,
              label=f"Oracle, {confidence:.0%} interval")  # fmt: skip
    if certificate is not None:
        axes.axvline(certificate, color=PALETTE["oracle"], lw=1.4, ls="--",
                     label=f"certified at {100 * confidence:g}%")  # fmt: skip
    axes.legend(loc="upper right", frameon=True, framealpha=0.95, edgecolor="none")
