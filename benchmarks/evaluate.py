"""How fast is the vectorised evaluation? ``python -m benchmarks.evaluate``

One run, one machine, side by side: 10^5 grid points through ``evaluate``, against plain Python that
sums each bound's formula position by position (``math`` on floats, and mpmath at 30 digits). The
plain loops are timed on a few points spread over the grid and extrapolated to the whole, which the
output says. The two must agree on those points. Then a sweep of 10^6 grid points.

Exits 1 when the vectorised path is not at least 50 times faster than the plain float loop.
"""

from __future__ import annotations

import math
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import mpmath
import numpy as np

from bounds.evaluate import evaluate
from simulations.sweep import prepare, write_sweep

#: What both sides compute: bounds that need a sum over positions, and some that do not.
NAMES: Final = (
    "classical-kl",
    "pinsker-marginal-kl",
    "mixed-kl",
    "coupling",
    "adaptive",
    "martingale-chi2",
    "square-root",
)
REQUIRED: Final = 50.0
_FLOAT_POINTS, _MPMATH_POINTS = 60, 6


def direct(T: int, delta: float, m: ModuleType | Any) -> dict[str, Any]:
    """The bounds of :data:`NAMES` from ``kl_max`` alone, summed position by position.

    Args:
        T: horizon, tokens.
        delta: largest token KL, nats.
        m: :mod:`math` or :mod:`mpmath`: supplies ``sqrt``, and numbers of its kind.
    """
    delta = m.mpf(delta) if m is mpmath else delta
    sqrt = m.sqrt
    eps = min(1, sqrt(delta / 2))
    pinsker = coupling = adaptive = delta * 0
    for t in range(1, T + 1):
        pinsker += min(1, sqrt((t - 1) * delta / 2))
        coupling += min(1, (t - 1) * eps)
        adaptive += eps * min(1, (T - t) * eps, sqrt((T - t) * delta / 2))
    x = 2 * delta
    # sum of orthogonal increments, term by term: all positive, so nothing cancels
    excess, growth = delta * 0, delta * 0
    for _ in range(T):
        excess += x * growth
        growth += x * (1 + growth)
    seq = min(1, sqrt(T * delta / 2))
    return {
        "classical-kl": 2 * T * (T - 1) * min(1, delta / 2),
        "pinsker-marginal-kl": 4 * eps * pinsker,
        "mixed-kl": 4 * T * eps * seq,
        "coupling": 4 * eps * coupling,
        "adaptive": 4 * adaptive,
        "martingale-chi2": sqrt(excess) / 2,
        "square-root": min(1, T * eps, seq) + sqrt(T * x) / 2,
    }


def _best_of(repeats: int, work: Callable[[], Any]) -> tuple[float, Any]:
    best, result = math.inf, None
    for _ in range(repeats):
        start = time.perf_counter()
        result = work()
        best = min(best, time.perf_counter() - start)
    return best, result


def _loop(points: list[tuple[int, float]], m: ModuleType | Any) -> list[dict[str, Any]]:
    return [direct(T, delta, m) for T, delta in points]


def main() -> int:
    """Run, print, and return the exit status."""
    horizons = np.unique(np.round(np.geomspace(16, 4096, 400)))
    deltas = np.geomspace(1e-7, 1e-4, math.ceil(1e5 / horizons.size))
    T, delta = (a.reshape(-1) for a in np.meshgrid(horizons, deltas))
    total = T.size
    mpmath.mp.dps = 30

    def vectorised() -> Any:
        return evaluate(NAMES, T=T, kl_max=delta)

    vectorised()  # the first call walks the expressions; a plain loop has no such cost either
    fast, result = _best_of(3, vectorised)
    print(
        f"vectorised evaluate: {total:,} points x {len(NAMES)} bounds in {fast:.3f} s "
        f"({total / fast:,.0f} points/s; best of 3, after a first call)"
    )

    # Points whose mean horizon is the grid's, so that extrapolating a cost linear in T is fair.
    order = np.argsort(T, kind="stable")
    ok = True
    for label, m, count in (("float", math, _FLOAT_POINTS), ("mpmath", mpmath, _MPMATH_POINTS)):
        picked = order[((np.arange(count) + 0.5) * total / count).astype(int)]
        points = [(int(T[i]), float(delta[i])) for i in picked]
        slow, found = _best_of(1, partial(_loop, points, m))
        whole = slow * float(T.sum()) / sum(horizon for horizon, _ in points)
        worst = max(
            abs(float(row[name]) / float(result[name].value[i]) - 1)
            for i, row in zip(picked, found, strict=True)
            for name in NAMES
        )
        ratio = whole / fast
        print(
            f"plain {label} loop: {count} points in {slow:.3f} s; extrapolated (not run) to "
            f"{total:,} points: {whole:,.1f} s -> vectorised is {ratio:,.0f} times faster; "
            f"largest relative difference on those points {worst:.1e}"
        )
        ok &= worst < 1e-9
        if label == "float":
            ok &= ratio >= REQUIRED

    _sweep_throughput()
    print(f"{'pass' if ok else 'FAIL'}: required >= {REQUIRED:.0f} times, agreement < 1e-9")
    return 0 if ok else 1


def _sweep_throughput() -> None:
    grid = {"T": np.unique(np.round(np.geomspace(16, 65536, 1250)))}
    grid["kl_max"] = np.geomspace(1e-8, 1e-4, math.ceil(1e6 / grid["T"].size))
    start = time.perf_counter()
    prepare(grid)
    print(
        f"checking the grid and deriving the orders, once a process: "
        f"{time.perf_counter() - start:.2f} s"
    )
    with tempfile.TemporaryDirectory() as folder:
        for label, path in (("slopes only", None), ("to Parquet", Path(folder) / "sweep.parquet")):
            start = time.perf_counter()
            result = write_sweep(prepare(grid), path)
            took = time.perf_counter() - start
            bounds = result.slopes["bound"].nunique()
            print(
                f"sweep, {label}: {result.points:,} points x {bounds} bounds in {took:.2f} s "
                f"({result.points / took:,.0f} points/s, {result.rows:,} rows written)"
            )


if __name__ == "__main__":
    sys.exit(main())
