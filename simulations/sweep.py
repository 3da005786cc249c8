"""Evaluate the bounds on a grid of inputs: a tidy table, and slopes fitted on log-log axes.

The grid is the Cartesian product of the values of each swept quantity, with T running fastest.
It is walked in blocks of at most :data:`BLOCK` points, each one vectorised call of the registry's
evaluation, so that memory does not grow with the grid.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from bounds import registry
from bounds.compose import composed_expression
from bounds.errors import InputError
from bounds.evaluate import REWARD_RANGE, evaluate_resolved, resolve
from bounds.quantities import QUANTITIES
from bounds.registry import Bound
from bounds.validate import LIMITS, SLACK, Limit, check
from simulations.files import atomic_path
from simulations.grid import MAX_POINTS
from simulations.slopes import SlopeFit
from simulations.tables import TableFile, table_kind

FloatArray = npt.NDArray[np.float64]

#: Grid points per block.
BLOCK: Final = 250_000
#: A column with more distinct values than this is not dictionary-encoded.
_DISTINCT: Final = 50_000
#: Quantities that can be swept: the scalars.
SWEPT: Final = tuple(name for name, entry in QUANTITIES.items() if not entry.per_position)


@dataclass(frozen=True)
class Block:
    """Values of every bound on part of the grid.

    Attributes:
        rows: which combinations of the quantities other than T, as a slice; ``g`` of them.
        columns: which values of T, as a slice; ``m`` of them.
        values: bound name -> float64 ``[g, m]``, reward units.
    """

    rows: slice
    columns: slice
    values: Mapping[str, FloatArray]

    @property
    def points(self) -> int:
        """Grid points in the block."""
        return (self.rows.stop - self.rows.start) * (self.columns.stop - self.columns.start)


@dataclass
class Sweep:
    """A checked grid, ready to be walked.

    Attributes:
        T: float64 ``[m]``, increasing horizons, in tokens.
        others: quantity name -> float64 ``[g]``, one value per combination of the quantities
            other than T (their Cartesian product, last one fastest).
        entries: registry entries that can be evaluated.
        status: bound name -> given, derived or approximation.
        missing: bound name -> names of the inputs that neither are given nor follow.
    """

    T: FloatArray
    others: dict[str, FloatArray]
    entries: tuple[Bound, ...]
    status: dict[str, str]
    missing: dict[str, tuple[str, ...]]
    orders: dict[str, tuple[str, str]] = field(default_factory=dict)

    @property
    def groups(self) -> int:
        """Combinations of the quantities other than T."""
        return len(next(iter(self.others.values()))) if self.others else 1

    @property
    def points(self) -> int:
        """Grid points."""
        return self.groups * self.T.size

    def order(self, name: str) -> str:
        """Derived order in T, e.g. ``"T^2 → T"`` (small divergence → capped); empty if unknown."""
        small, capped = self.orders.get(name, ("", ""))
        return small if small == capped else f"{small} → {capped}"

    @property
    def plain_columns(self) -> tuple[str, ...]:
        """Columns with so many distinct values that a dictionary of them does not pay."""
        many = {"T": self.T.size, **dict.fromkeys(self.others, self.groups)}
        return ("value", "vacuous", *(name for name, n in many.items() if n > _DISTINCT))

    def blocks(self, size: int = BLOCK) -> Iterator[Block]:
        """Walk the grid in blocks of at most ``size`` points, T fastest."""
        width = min(self.T.size, size)
        height = max(1, size // width)
        for start in range(0, self.groups, height):
            rows = slice(start, min(start + height, self.groups))
            for left in range(0, self.T.size, width):
                yield self._block(rows, slice(left, min(left + width, self.T.size)))

    def _block(self, rows: slice, columns: slice) -> Block:
        given = {name: values[rows, None] for name, values in self.others.items()}
        given["T"] = self.T[None, columns]
        shape = (rows.stop - rows.start, columns.stop - columns.start)
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            found = evaluate_resolved(self.entries, resolve(given, validate=False))
        return Block(
            rows,
            columns,
            {e.name: np.broadcast_to(np.asarray(e.value, dtype=np.float64), shape) for e in found},
        )

    def batches(self, block: Block) -> Iterator[pa.RecordBatch]:
        """Tidy rows of one block, one batch a bound."""
        shape = (block.rows.stop - block.rows.start, block.columns.stop - block.columns.start)
        horizons = self.T[None, block.columns].astype(np.int64)
        point = {"T": pa.array(np.broadcast_to(horizons, shape).reshape(-1))}
        for name, values in self.others.items():
            point[name] = pa.array(np.broadcast_to(values[block.rows, None], shape).reshape(-1))
        for entry in self.entries:
            value = np.ascontiguousarray(block.values[entry.name]).reshape(-1)
            yield pa.RecordBatch.from_pydict(
                {
                    **point,
                    "bound": _repeated(entry.name, value.size),
                    "value": pa.array(value),
                    "status": _repeated(self.status[entry.name], value.size),
                    "vacuous": pa.array(value > REWARD_RANGE),
                    "owner": _repeated(entry.owner, value.size),
                    "order": _repeated(self.order(entry.name), value.size),
                }
            )


@dataclass(frozen=True)
class SweepResult:
    """What a sweep leaves besides its rows.

    Attributes:
        slopes: one row per bound and combination of the quantities other than T; see
            :func:`slope_table`.
        missing: bound name -> inputs that were absent.
        points: grid points.
        rows: rows of the tidy table.
        table: the rows, when they were kept.
    """

    slopes: pd.DataFrame
    missing: dict[str, tuple[str, ...]]
    points: int
    rows: int
    table: pd.DataFrame | None = None


def prepare(grid: Mapping[str, npt.ArrayLike], bounds: Iterable[str] | None = None) -> Sweep:
    """Check a grid and find out which bounds it can evaluate.

    Args:
        grid: swept quantity -> its values (numbers or 1-d arrays); must hold ``"T"``.
        bounds: registry names; all when None.

    Raises:
        InputError: unknown or illegal quantity, contradictory point, too many points, or nothing
            to evaluate.
        KeyError: unknown bound.
    """
    wanted = (
        [registry.get(name) for name in dict.fromkeys(bounds)]
        if bounds is not None
        else list(registry.all_bounds())
    )
    wanted = list(dict.fromkeys(wanted))
    axes = _axes(grid)
    horizons = axes.pop("T")
    mesh = np.meshgrid(*axes.values(), indexing="ij") if axes else []
    others = {name: part.reshape(-1) for name, part in zip(axes, mesh, strict=True)}
    _check_points(horizons, others)
    corner = resolve({"T": horizons[0], **{n: v[0] for n, v in others.items()}}, validate=False)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        trial = evaluate_resolved(wanted, corner)
    usable = tuple(e.bound for e in trial if e.value is not None)
    missing = {
        e.name: tuple(n for n, p in e.inputs.items() if p.status == "missing")
        for e in trial
        if e.value is None
    }
    if not usable:
        needs = sorted({QUANTITIES[n].option for names in missing.values() for n in names})
        raise InputError(
            f"none of the bounds can be evaluated from {', '.join(['T', *others])}; "
            f"give a divergence too (one of {', '.join(needs) or '--kl-max'}), "
            "e.g. --kl-max 1e-6,1e-5,1e-4"
        )
    status = {e.name: str(e.status) for e in trial if e.value is not None}
    sweep = Sweep(horizons, others, usable, status, missing)
    sweep.orders.update(derived_orders(usable, ["T", *others]))
    return sweep


def _axes(grid: Mapping[str, npt.ArrayLike]) -> dict[str, FloatArray]:
    for name in grid:
        if name not in SWEPT:
            raise InputError(f"{name!r} cannot be swept; known: {', '.join(SWEPT)}")
    if "T" not in grid:
        raise InputError("a sweep needs horizons; give e.g. --T 16:65536:x2")
    axes = {}
    for name in SWEPT:
        if name in grid:
            values = np.atleast_1d(np.asarray(grid[name], dtype=np.float64))
            if values.ndim != 1:
                raise InputError(f"{QUANTITIES[name].option} ({name}) is not a list of numbers")
            check({name: values})
            axes[name] = np.unique(values)
    points = math.prod(values.size for values in axes.values())
    if points > MAX_POINTS:
        raise InputError(
            f"the grid has {points:.3g} points, more than {MAX_POINTS:.0e}; sweep fewer values"
        )
    return axes


def _check_points(horizons: FloatArray, others: Mapping[str, FloatArray]) -> None:
    """Raise at the first point (T fastest) whose quantities contradict each other."""
    first: tuple[int, Limit] | None = None
    for limit in LIMITS:
        if limit.low not in others or limit.high not in others:
            continue
        # the least horizon is the strictest one, and horizons increase
        most = others[limit.high] * (horizons[0] if limit.per_token else 1.0) * (1 + SLACK)
        rows = np.flatnonzero(others[limit.low] > most)
        if rows.size and (first is None or rows[0] < first[0]):
            first = (int(rows[0]), limit)
    if first is None:
        return
    row, limit = first
    low, high, per_token, why = limit.low, limit.high, limit.per_token, limit.why
    point = [f"T={horizons[0]:.15g}", *(f"{n}={v[row]:g}" for n, v in others.items())]
    bound = f"T * {high}" if per_token else high
    least = float(others[high][row] * (horizons[0] if per_token else 1.0))
    mend = f"lower {QUANTITIES[low].option} to at most {least:g} or raise {QUANTITIES[high].option}"
    if per_token:
        start = math.ceil(others[low][row] / others[high][row]) if others[high][row] > 0 else 0
        mend += f", or start --T at {start}" if start else ""
    raise InputError(
        f"{low} exceeds {bound} at the grid point {', '.join(point)}, which no policy pair can do "
        f"({why}); {mend}"
    )


def derived_orders(entries: Iterable[Bound], given: Iterable[str]) -> dict[str, tuple[str, str]]:
    """Orders in T (small divergence, capped) of what is evaluated from ``given``.

    Empty where an order cannot be derived.
    """
    from bounds.order import orders

    given = tuple(given)
    found: dict[str, tuple[str, str]] = {}
    for entry in entries:
        expression = composed_expression(entry, given)
        if expression is not None:
            small, capped = (str(order or "") for order in orders(expression))
            found[entry.name] = (small, capped)
    return found


def sweep(grid: Mapping[str, npt.ArrayLike], bounds: Iterable[str] | None = None) -> SweepResult:
    """Evaluate ``bounds`` on the Cartesian product ``grid`` and keep the rows in memory.

    Returns:
        A :class:`SweepResult` whose ``table`` has one column per swept quantity and ``bound``,
        ``value`` (float64, reward units), ``status``, ``vacuous``, ``owner``, ``order``.

    Raises:
        InputError, KeyError: see :func:`prepare`.
    """
    plan = prepare(grid, bounds)
    fit = SlopeFit(plan.T.size, plan.groups, [e.name for e in plan.entries])
    batches: list[pa.RecordBatch] = []
    for block in plan.blocks():
        fit.update(block.rows, plan.T[block.columns], block.values)
        batches.extend(plan.batches(block))
    table = pa.Table.from_batches(batches).unify_dictionaries().to_pandas()
    return SweepResult(slope_table(plan, fit), plan.missing, plan.points, len(table), table)


def slope_table(plan: Sweep, fit: SlopeFit) -> pd.DataFrame:
    """Fitted slopes beside derived orders.

    Columns: ``bound``, ``title``, ``owner``, ``form``, ``role``, ``status``, one per swept quantity
    other than T, ``n`` (points used), ``slope``, ``slope_se``, ``slope_first``, ``slope_last``,
    ``order_small``, ``order_capped``, ``order``, ``vacuous_from`` (first T whose value exceeds the
    reward range; NaN when none does).
    """
    parts = []
    for entry in plan.entries:
        small, capped = plan.orders.get(entry.name, ("", ""))
        labels = {
            "bound": entry.name,
            "title": entry.title,
            "owner": entry.owner,
            "form": entry.form,
            "role": entry.role,
            "status": plan.status[entry.name],
        }
        orders = {"order_small": small, "order_capped": capped, "order": plan.order(entry.name)}
        parts.append(
            pd.DataFrame(
                {
                    **{key: np.repeat(text, plan.groups) for key, text in labels.items()},
                    **plan.others,
                    **fit.result(entry.name),
                    **{key: np.repeat(text, plan.groups) for key, text in orders.items()},
                }
            )
        )
    return pd.concat(parts, ignore_index=True)


def write_sweep(
    plan: Sweep,
    path: Path | None,
    kind: str | None = None,
    progress: Callable[[int], None] | None = None,
) -> SweepResult:
    """Stream the rows of ``plan`` into ``path``, which appears only when complete.

    Args:
        plan: from :func:`prepare`.
        path: table file; its folder must exist. None: only fit the slopes.
        kind: one of :data:`simulations.tables.SUFFIXES`; by the suffix of ``path`` when None.
        progress: called with the number of grid points done after each block.

    Raises:
        InputError: unknown suffix, or the folder does not exist or cannot be written.
        OSError: the file cannot be written; nothing is left behind.
    """
    if path is None:
        return _stream(plan, None, "", progress)
    kind = table_kind(path) if kind is None else kind
    with atomic_path(path) as partial:
        return _stream(plan, partial, kind, progress)


def _stream(
    plan: Sweep, path: Path | None, kind: str, progress: Callable[[int], None] | None
) -> SweepResult:
    fit = SlopeFit(plan.T.size, plan.groups, [e.name for e in plan.entries])
    rows = 0
    sink = None if path is None else TableFile(path, kind, plan.plain_columns)
    try:
        # one block is written while the next is evaluated
        with ThreadPoolExecutor(max_workers=1) as pool:
            pending: Future[int] | None = None
            for block in plan.blocks():
                fit.update(block.rows, plan.T[block.columns], block.values)
                if pending is not None:
                    rows += pending.result()
                if sink is not None:
                    pending = pool.submit(sink.write, plan.batches(block))
                if progress is not None:
                    progress(block.points)
            if pending is not None:
                rows += pending.result()
    finally:
        if sink is not None:
            sink.close()
    return SweepResult(slope_table(plan, fit), plan.missing, plan.points, rows)


def _repeated(text: str, count: int) -> pa.DictionaryArray:
    index = pa.array(np.zeros(count, dtype=np.int8))
    return pa.DictionaryArray.from_arrays(index, pa.array([text]))
