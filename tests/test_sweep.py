"""Sweeps against mpmath sums, power laws with known slopes, and hostile command lines."""

from __future__ import annotations

import time
from pathlib import Path

import mpmath
import numpy as np
import pandas as pd
import pytest
import sympy as sp
import typer
from typer.testing import CliRunner

from bounds.compose import composed_expression
from bounds.errors import InputError
from bounds.evaluate import evaluate
from bounds.quantities import BY_SYMBOL
from simulations import sweep as module
from simulations.slopes import SlopeFit
from simulations.sweep import prepare, sweep, write_sweep
from trust_bounds.sweep import register

GRID = {"T": 2.0 ** np.arange(4, 13), "kl_max": [1e-6, 1e-4]}
COLUMNS = ["T", "kl_max", "bound", "value", "status", "vacuous", "owner", "order"]


@pytest.fixture
def run() -> object:
    app = typer.Typer()
    app.callback()(lambda: None)
    register(app)
    return lambda *words: CliRunner().invoke(app, ["sweep", *map(str, words)])


def _mp_value(name: str, T: int, delta: float) -> float:
    """A bound summed position by position at 30 digits, from ``kl_max`` alone."""
    mp = mpmath.mp
    with mp.workdps(30):
        d = mp.mpf(delta)
        eps = min(1, mp.sqrt(d / 2))
        if name == "classical-kl":
            value = 2 * T * (T - 1) * min(1, d / 2)
        elif name == "pinsker-marginal-kl":
            value = 4 * eps * sum(min(1, mp.sqrt((t - 1) * d / 2)) for t in range(1, T + 1))
        elif name == "mixed-kl":
            value = 4 * T * eps * min(1, mp.sqrt(T * d / 2))
        elif name == "coupling":
            value = 4 * eps * sum(min(1, (t - 1) * eps) for t in range(1, T + 1))
        elif name == "martingale-chi2":
            value = mp.sqrt((1 + 2 * d) ** T - 1 - T * 2 * d) / 2
        elif name == "square-root":
            value = min(1, T * eps, mp.sqrt(T * d / 2)) + mp.sqrt(T * 2 * d) / 2
        elif name == "cauchy-schwarz":
            value = sum(mp.sqrt(2 * d * (T - t) * d / 2) for t in range(1, T + 1))
        else:
            raise AssertionError(name)
        return float(value)


def test_values_are_the_sums() -> None:
    names = [
        "classical-kl",
        "pinsker-marginal-kl",
        "mixed-kl",
        "coupling",
        "martingale-chi2",
        "square-root",
        "cauchy-schwarz",
    ]
    table = sweep(GRID, names).table
    assert table is not None
    assert list(table.columns) == COLUMNS
    assert len(table) == 9 * 2 * len(names)
    for row in table.to_dict("records"):
        if row["T"] in (16, 512, 4096):
            wanted = _mp_value(row["bound"], row["T"], row["kl_max"])
            assert row["value"] == pytest.approx(wanted, rel=1e-10), row
        assert row["vacuous"] == (row["value"] > 1)
    assert table["T"].dtype == np.int64
    assert table["value"].dtype == np.float64
    status = dict(zip(table["bound"], table["status"], strict=True))
    assert status["classical-kl"] == "given"
    assert status["mixed-kl"] == "derived"
    assert status["martingale-chi2"] == "approximation"


def test_product_of_axes_has_every_point_once() -> None:
    grid = {"T": [8, 4], "kl_max": [1e-2, 1e-3, 1e-4], "kl_seq": [1e-5, 0.0]}
    result = sweep(grid, ["mixed-kl"])
    assert result.table is not None
    points = result.table[["T", "kl_max", "kl_seq"]]
    assert len(points) == len(points.drop_duplicates()) == result.points == 12
    # zero K_seq: the bound is 0, has no logarithm, and gets no slope
    zero = result.slopes[result.slopes["kl_seq"] == 0]
    assert (zero["n"] == 0).all()
    assert zero["slope"].isna().all()
    fixed = result.slopes[result.slopes["kl_seq"] > 0]
    np.testing.assert_allclose(fixed["slope"], 1.0, atol=1e-12)


def test_blocks_do_not_change_anything(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    names = ["coupling", "martingale-chi2", "square-root", "unified"]
    whole = sweep(GRID, names)
    for size in (1, 4, 9, 13):
        monkeypatch.setattr(module.Sweep.blocks, "__defaults__", (size,))
        parts = sweep(GRID, names)
        assert whole.table is not None
        assert parts.table is not None
        by = ["bound", "kl_max", "T"]
        one = whole.table.astype({"bound": str}).sort_values(by)
        two = parts.table.astype({"bound": str}).sort_values(by)
        np.testing.assert_array_equal(one["value"], two["value"])
        pd.testing.assert_frame_equal(whole.slopes, parts.slopes, rtol=1e-9, atol=1e-7)


def test_absent_inputs_leave_a_bound_out() -> None:
    result = sweep({"T": [16, 32], "tv_max": [1e-3]})
    assert result.table is not None
    assert "pinsker-marginal-kl" in result.missing
    assert result.missing["pinsker-marginal-kl"] == ("kl_max",)
    assert not set(result.missing) & set(result.table["bound"])
    with pytest.raises(InputError, match="--kl-max"):
        sweep({"T": [16, 32]})


@pytest.mark.parametrize(
    ("grid", "says"),
    [
        ({"T": [10, 100], "kl_max": [1e-6, 1e-3], "kl_seq": [1e-3]}, "T=10, kl_max=1e-06"),
        ({"T": [10], "tv_max": [0.001], "tv_seq": [0.5]}, "--tv-seq to at most 0.01"),
        ({"T": [10], "chi2_max": [0.001], "chi2_mean": [0.5]}, "chi2_mean exceeds chi2_max"),
        ({"T": [10], "tv_max": [1.5]}, "at most 1"),
        ({"T": [10], "kl_max": [-1.0]}, ">= 0"),
        ({"T": [10], "kl_max": [np.nan]}, "NaN"),
        ({"T": [10.5], "kl_max": [1e-3]}, "whole"),
        ({"T": [], "kl_max": [1e-3]}, "empty"),
        ({"kl_max": [1e-3]}, "--T"),
        ({"T": [10], "nonsense": [1]}, "nonsense"),
        ({"T": np.arange(1, 20_000), "kl_max": np.linspace(0, 1, 10_000)}, "points"),
    ],
)
def test_contradictions_name_the_point(grid: dict[str, object], says: str) -> None:
    with pytest.raises(InputError) as caught:
        prepare(grid)  # type: ignore[arg-type]
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_slope_fit_is_least_squares() -> None:
    rng = np.random.default_rng(5)
    T = np.unique(rng.integers(1, 10**6, 40)).astype(float)
    value = T**1.3 * np.exp(rng.normal(0, 0.2, (3, T.size)))
    value[1, [0, 5, T.size - 1]] = [np.inf, 0.0, np.nan]
    fit = SlopeFit(T.size, 3, ["b"])
    for start in range(0, T.size, 7):
        fit.update(slice(0, 3), T[start : start + 7], {"b": value[:, start : start + 7]})
    found = fit.result("b")
    for g in range(3):
        keep = np.isfinite(value[g]) & (value[g] > 0)
        x, y = np.log(T[keep]), np.log(value[g, keep])
        coefficients, covariance = np.polyfit(x, y, 1, cov=True)
        assert found["n"][g] == keep.sum()
        assert found["slope"][g] == pytest.approx(coefficients[0], rel=1e-10)
        assert found["slope_se"][g] == pytest.approx(np.sqrt(covariance[0, 0]), rel=1e-8)
        assert found["slope_first"][g] == pytest.approx((y[1] - y[0]) / (x[1] - x[0]), rel=1e-9)
        assert found["slope_last"][g] == pytest.approx((y[-1] - y[-2]) / (x[-1] - x[-2]), rel=1e-9)


def _exponent(order: str) -> float | None:
    """The power of T in ``1``, ``T`` or ``T^(3/2)``; None for anything else."""
    if order in ("1", "T"):
        return 0.0 if order == "1" else 1.0
    body = order.removeprefix("T^").strip("()")
    try:
        numerator, _, denominator = body.partition("/")
        return float(numerator) / float(denominator or 1)
    except ValueError:
        return None


@pytest.mark.parametrize(
    "fixed",
    [
        {"kl_max": 1e-13},
        {"tv_max": 1e-9},
        {"kl_max": 1e-13, "kl_seq": 1e-15},
        {"chi2_max": 1e-14, "kl_max": 1e-14},
    ],
)
def test_derived_orders_are_the_slopes_at_small_divergence(fixed: dict[str, float]) -> None:
    slopes = sweep({"T": [3e4, 6e4, 1e5], **fixed}).slopes
    checked = 0
    for row in slopes.to_dict("records"):
        wanted = _exponent(row["order_small"])
        if wanted is not None:
            assert row["slope"] == pytest.approx(wanted, abs=2e-3), row["bound"]
            checked += 1
    assert checked >= 8


def test_derived_orders_are_the_slopes_once_capped() -> None:
    slopes = sweep({"T": [1e9, 1e10, 1e11], "kl_max": [1e-3]}).slopes
    checked = 0
    for row in slopes.to_dict("records"):
        wanted = _exponent(row["order_capped"])
        if wanted is not None and row["n"] == 3:
            assert row["slope"] == pytest.approx(wanted, abs=2e-3), row["bound"]
            checked += 1
    assert checked >= 8


def test_the_orders_of_what_is_evaluated() -> None:
    found = {
        name: sweep({"T": [16, 32], "kl_max": [1e-6]}, [name]).slopes["order_small"].iloc[0]
        for name in ("classical-kl", "pinsker-marginal-kl", "mixed-kl", "coupling")
    }
    assert found == {
        "classical-kl": "T^2",
        "pinsker-marginal-kl": "T^(3/2)",
        "mixed-kl": "T^(3/2)",
        "coupling": "T^2",
    }
    held = sweep({"T": [16, 32], "kl_max": [1e-6], "kl_seq": [1e-6]}, ["mixed-kl"]).slopes
    assert held["order_small"].iloc[0] == "T"


def _number(node: sp.Basic, at: dict[sp.Basic, float]) -> mpmath.mpf:
    """The value of an expression, every sum and product written out."""
    if node in at:
        return mpmath.mpf(at[node])
    if isinstance(node, sp.Sum | sp.Product):
        index, low, high = node.limits[0]
        places = range(int(_number(low, at)), int(_number(high, at)) + 1)
        terms = [_number(node.function, {**at, index: k}) for k in places]
        return mpmath.fsum(terms) if isinstance(node, sp.Sum) else mpmath.fprod(terms)
    if not node.args:
        return mpmath.mpf(node.p) / node.q
    parts = [_number(argument, at) for argument in node.args]
    if isinstance(node, sp.Pow):
        return parts[0] ** parts[1]
    return {sp.Add: mpmath.fsum, sp.Mul: mpmath.fprod, sp.Min: min}[node.func](parts)


@pytest.mark.parametrize(
    "given",
    [("T", "kl_max"), ("T", "kl_max", "kl_seq"), ("T", "tv_max"), ("T", "chi2_max", "kl_max")],
)
def test_composed_expressions_evaluate_to_the_values(given: tuple[str, ...]) -> None:
    numbers = {"T": 12.0, "kl_max": 3e-3, "kl_seq": 1e-2, "tv_max": 0.05, "chi2_max": 4e-3}
    inputs = {name: numbers[name] for name in given}
    found = evaluate(**inputs)
    symbols = {quantity.name: symbol for symbol, quantity in BY_SYMBOL.items()}
    for entry in found:
        expression = composed_expression(entry.bound, given)
        if entry.value is None:
            assert expression is None or entry.bound.role == "minimum"
            continue
        assert expression is not None
        assert {str(s) for s in expression.free_symbols} <= {str(symbols[n]) for n in given}
        exact = _number(expression, {symbols[n]: inputs[n] for n in given})
        assert float(exact) == pytest.approx(float(entry.value), rel=1e-9), entry.name


@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".csv.gz"])
def test_files_hold_the_table(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"s{suffix}"
    result = write_sweep(prepare(GRID), path)
    read = pd.read_parquet(path) if suffix == ".parquet" else pd.read_csv(path)
    assert [p.name for p in tmp_path.iterdir()] == [path.name]
    kept = sweep(GRID).table
    assert kept is not None
    assert list(read.columns) == COLUMNS
    assert len(read) == result.rows == len(kept)
    np.testing.assert_allclose(read["value"], kept["value"], rtol=1e-15)
    assert read["bound"].tolist() == kept["bound"].tolist()


def test_a_failure_leaves_nothing_and_keeps_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "s.csv"
    path.write_text("old")
    monkeypatch.setattr(module.Sweep.blocks, "__defaults__", (4,))
    plan = prepare(GRID)
    seen = []

    def break_later(points: int) -> None:
        seen.append(points)
        if len(seen) == 3:
            raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        write_sweep(plan, path, progress=break_later)
    assert [p.name for p in tmp_path.iterdir()] == ["s.csv"]
    assert path.read_text() == "old"


@pytest.mark.parametrize(
    "words",
    [
        ("--T", "16:64:x1", "--kl-max", "1e-4"),
        ("--T", "many", "--kl-max", "1e-4"),
        ("--T", "", "--kl-max", "1e-4"),
        ("--T", "1:1e12:1", "--kl-max", "1e-4"),
        ("--T", "16", "--kl-max", "-1"),
        ("--T", "16", "--tv-max", "2"),
        ("--T", "16"),
        ("--T", "16", "--kl-max", "1e-4", "--kl-seq", "3"),
        ("--T", "16", "--kl-max", "1e-4", "--bounds", "no-such-bound"),
        ("--T", "16", "--kl-max", "1e-4", "--bounds", " , "),
        ("--T", "16", "--kl-max", "1e-4", "--out", "{folder}/s.xlsx"),
        ("--T", "16", "--kl-max", "1e-4", "--figure", "{folder}/s.bmp"),
        ("--T", "16", "--kl-max", "1e-4", "--out", "{folder}/none/s.csv"),
        (
            "--T",
            "16",
            "--kl-max",
            "1e-4",
            "--out",
            "{folder}/x.csv",
            "--figure",
            "{folder}/none/s.png",
        ),
    ],
)
def test_hostile_options_exit_2_with_one_line(
    words: tuple[str, ...],
    run,
    tmp_path: Path,  # type: ignore[no-untyped-def]
) -> None:
    words = tuple(word.format(folder=tmp_path) for word in words)
    if "--out" not in words:
        words += ("--out", str(tmp_path / "s.parquet"))
    done = run(*words)
    assert done.exit_code == 2, done.output
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_the_command_writes_both_and_prints_slopes(run, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    out, figure = tmp_path / "s.parquet", tmp_path / "s.png"
    done = run("--T", "16:65536:x2", "--kl-max", "1e-6,1e-5,1e-4", "--out", out, "--figure", figure)
    assert done.exit_code == 0, done.output
    assert figure.read_bytes().startswith(b"\x89PNG")
    table = pd.read_parquet(out)
    assert len(table) == 39 * table["bound"].nunique()
    assert "1.500 ± 0.000" in done.stdout
    assert "T^(3/2)" in done.stdout
    assert "left out: oracle (needs log_ratio)" in done.stdout
    assert sorted(p.name for p in tmp_path.iterdir()) == ["s.parquet", "s.png"]


@pytest.mark.slow
def test_a_million_points_in_seconds(tmp_path: Path) -> None:
    import pyarrow.parquet

    plan = prepare({"T": np.arange(16.0, 10_016.0), "kl_max": np.geomspace(1e-8, 1e-4, 100)})
    start = time.perf_counter()
    result = write_sweep(plan, tmp_path / "s.parquet")
    took = time.perf_counter() - start
    assert result.points == 1_000_000
    read = pyarrow.parquet.ParquetFile(tmp_path / "s.parquet").metadata
    assert read.num_rows == result.rows == 1_000_000 * len(plan.entries)
    assert read.num_columns == len(COLUMNS)
    assert took < 60
