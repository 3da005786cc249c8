"""``trust-bounds sweep``: the bounds on a grid, as a table, with slopes beside derived orders."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from bounds.errors import InputError
from bounds.quantities import QUANTITIES
from simulations.files import atomic_path
from simulations.grid import FloatArray, parse_grid
from simulations.sweep import Sweep, SweepResult, prepare, sweep, write_sweep
from simulations.tables import table_kind
from trust_bounds.common import console, fail, figure_format
from trust_bounds.evaluate import parse_names

#: Values of T and of each other quantity that a figure draws at most.
_DRAWN_T, _DRAWN_OTHER = 400, 6
#: Combinations of the quantities other than T that the printed table shows at most.
_SHOWN_GROUPS = 6

CAPTION = (
    "slope: least squares of log value on log T (± standard error; the bend of the curve, not "
    "noise). ends: first and last pair of points. order: small divergence → capped, derived from "
    "the formula. vacuous: first T of the grid with value > 1, the reward range. approximation: "
    "rests on a small-divergence expansion of a missing input, not a guarantee. "
    "KL is KL(roll || theta) in nats."
)


def _grid_help(name: str) -> str:
    return f"{QUANTITIES[name].meaning}. Grid: 1,2 or a:b:x2 or a:b:+10 or a:b:n25."


def _thinned(values: FloatArray, most: int) -> FloatArray:
    """At most ``most`` of the increasing ``values``, evenly spread on a log axis, ends included."""
    if values.size <= most:
        return values
    low = max(values[0], np.finfo(float).tiny)
    wanted = np.geomspace(low, values[-1], most)
    index = np.searchsorted(values, wanted).clip(0, values.size - 1)
    return values[np.unique(np.concatenate([[0], index, [values.size - 1]]))]


def figure_grid(grid: dict[str, FloatArray]) -> dict[str, FloatArray]:
    """The part of the grid that a figure draws: at most 400 horizons and 6 values of kl_max.

    Quantities other than T and kl_max are drawn at their first value.
    """
    drawn = {"T": _thinned(grid["T"], _DRAWN_T)}
    for name, values in grid.items():
        if name != "T":
            drawn[name] = _thinned(values, _DRAWN_OTHER) if name == "kl_max" else values[:1]
    return drawn


def _number(value: float, digits: str) -> str:
    return "-" if np.isnan(value) else format(value, digits)


def slopes_table(result: SweepResult, plan: Sweep) -> Table:
    """The printed table: slopes beside orders for the first few combinations."""
    total = plan.groups
    title = f"{result.points:,} grid points, {plan.T.size:,} horizons"
    if total > _SHOWN_GROUPS:
        title += f"; the first {_SHOWN_GROUPS} of {total:,} combinations are shown"
    table = Table(title=title, caption=CAPTION, caption_justify="left")
    table.add_column("bound", no_wrap=True)
    for name in plan.others:
        table.add_column(name, justify="right", no_wrap=True)
    for heading in ("slope", "ends"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("derived order in T", no_wrap=True)
    table.add_column("vacuous from T", justify="right", no_wrap=True)
    table.add_column("status", no_wrap=True)
    for start in range(0, len(result.slopes), total):
        shown = result.slopes.iloc[start : start + min(total, _SHOWN_GROUPS)]
        for i, row in enumerate(shown.to_dict("records")):
            table.add_row(*_cells(row, list(plan.others), first=i == 0))
    return table


def _cells(row: dict[Any, Any], others: list[str], first: bool) -> list[str]:
    slope = _number(row["slope"], ".3f")
    if not np.isnan(row["slope_se"]):
        slope += f" ± {row['slope_se']:.3f}"
    ends = f"{_number(row['slope_first'], '.2f')} … {_number(row['slope_last'], '.2f')}"
    return [
        row["bound"] if first else "",
        *[f"{row[name]:g}" for name in others],
        slope,
        ends,
        row["order"] or "-",
        _number(row["vacuous_from"], ",.0f"),
        row["status"],
    ]


def _draw(
    grid: dict[str, FloatArray], slopes: pd.DataFrame, names: list[str], path: Path, kind: str
) -> None:
    from figures.sweep import drawn_bounds, save, sweep_figure

    part = figure_grid(grid)
    table = sweep(part, drawn_bounds(slopes, chosen=names)).table
    assert table is not None
    save(sweep_figure(table, slopes, names), path, kind)


def _run(
    grid: dict[str, FloatArray], names: list[str] | None, out: Path | None, figure: Path | None
) -> tuple[Sweep, SweepResult]:
    """Sweep into ``out`` and ``figure``; both appear, or neither does."""
    kind = table_kind(out) if out is not None else None
    figure_kind = figure_format(figure) if figure is not None else None
    if out is not None and figure is not None and out.resolve() == figure.resolve():
        raise InputError("--out and --figure name the same file; give two names")
    plan = prepare(grid, names)
    terminal = Console(stderr=True)
    bar = Progress(
        TextColumn("grid points"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f}%"),
        TimeRemainingColumn(),
        console=terminal,
        transient=True,
        disable=not sys.stderr.isatty(),
    )
    with ExitStack() as stack:
        table_path = stack.enter_context(atomic_path(out)) if out is not None else None
        figure_path = stack.enter_context(atomic_path(figure)) if figure is not None else None
        with bar:
            task = bar.add_task("sweep", total=plan.points)
            result = write_sweep(
                plan, table_path, kind, progress=lambda n: bar.update(task, advance=n)
            )
        if figure_path is not None and figure_kind is not None:
            _draw(grid, result.slopes, names or [], figure_path, figure_kind)
    return plan, result


def register(app: typer.Typer) -> None:
    """Add the command."""

    @app.command("sweep")
    def sweep_command(
        T: Annotated[str, typer.Option("--T", "-T", help=_grid_help("T"), show_default=False)],
        kl_max: Annotated[str | None, typer.Option(help=_grid_help("kl_max"))] = None,
        tv_max: Annotated[str | None, typer.Option(help=_grid_help("tv_max"))] = None,
        kl_seq: Annotated[str | None, typer.Option(help=_grid_help("kl_seq"))] = None,
        tv_seq: Annotated[str | None, typer.Option(help=_grid_help("tv_seq"))] = None,
        chi2_max: Annotated[str | None, typer.Option(help=_grid_help("chi2_max"))] = None,
        chi2_mean: Annotated[str | None, typer.Option(help=_grid_help("chi2_mean"))] = None,
        hel_max: Annotated[str | None, typer.Option(help=_grid_help("hel_max"))] = None,
        hel_mean: Annotated[str | None, typer.Option(help=_grid_help("hel_mean"))] = None,
        hel_seq: Annotated[str | None, typer.Option(help=_grid_help("hel_seq"))] = None,
        hel_cross: Annotated[str | None, typer.Option(help=_grid_help("hel_cross"))] = None,
        quartic_mean: Annotated[str | None, typer.Option(help=_grid_help("quartic_mean"))] = None,
        bounds: Annotated[
            str | None, typer.Option(help="Comma-separated names; all when left out.")
        ] = None,
        out: Annotated[
            Path | None, typer.Option(help="Tidy table: .parquet, .csv or .csv.gz.")
        ] = None,
        figure: Annotated[
            Path | None, typer.Option(help="Log-log figure: .png, .pdf or .svg.")
        ] = None,
    ) -> None:
        """Evaluate the bounds on a grid; print fitted slopes in T beside the derived orders."""
        specs = {
            "T": T,
            "kl_max": kl_max,
            "tv_max": tv_max,
            "kl_seq": kl_seq,
            "tv_seq": tv_seq,
            "chi2_max": chi2_max,
            "chi2_mean": chi2_mean,
            "hel_max": hel_max,
            "hel_mean": hel_mean,
            "hel_seq": hel_seq,
            "hel_cross": hel_cross,
            "quartic_mean": quartic_mean,
        }
        try:
            grid = {n: parse_grid(n, spec) for n, spec in specs.items() if spec is not None}
            plan, result = _run(grid, parse_names(bounds), out, figure)
        except InputError as error:
            fail(error)
        except OSError as error:
            fail(f"cannot write the output: {error.strerror or error}; choose another path")
        console.print(slopes_table(result, plan))
        for name, absent in result.missing.items():
            console.print(f"left out: {name} (needs {', '.join(absent) or 'its members'})")
        for path in (out, figure):
            if path is not None:
                rows = f" ({result.rows:,} rows)" if path == out else ""
                console.print(f"wrote {path}{rows}", soft_wrap=True)
