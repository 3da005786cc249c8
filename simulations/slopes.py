"""Slopes of log value against log T, accumulated block by block without keeping the values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from bounds.evaluate import REWARD_RANGE

FloatArray = npt.NDArray[np.float64]


class _Moments:
    """Running centred moments of ``(log T, log value)``, one set per group.

    Batches are merged by their means and centred sums, so nothing cancels.
    """

    def __init__(self, groups: int) -> None:
        self.n = np.zeros(groups)
        self.mean = np.zeros((2, groups))
        self.xx = np.zeros(groups)
        self.xy = np.zeros(groups)
        self.yy = np.zeros(groups)

    def merge(
        self, rows: slice, x: FloatArray, y: FloatArray, usable: npt.NDArray[np.bool_]
    ) -> None:
        """Add points ``x`` ``[m]``, ``y`` ``[g, m]`` where ``usable`` ``[g, m]``."""
        n = usable.sum(axis=1).astype(np.float64)
        safe = np.maximum(n, 1)
        if usable.all():
            mean_x = np.full(len(n), x.mean())
            dx = np.broadcast_to(x - x.mean(), y.shape)
        else:
            mean_x = (x * usable).sum(axis=1) / safe
            dx = np.where(usable, x - mean_x[:, None], 0.0)
        mean_y = y.sum(axis=1, where=usable) / safe
        dy = np.where(usable, y - mean_y[:, None], 0.0)
        old = self.n[rows]
        total = np.maximum(old + n, 1)
        gap_x, gap_y = mean_x - self.mean[0, rows], mean_y - self.mean[1, rows]
        share = old * n / total
        self.xx[rows] += np.einsum("gm,gm->g", dx, dx) + gap_x * gap_x * share
        self.xy[rows] += np.einsum("gm,gm->g", dx, dy) + gap_x * gap_y * share
        self.yy[rows] += np.einsum("gm,gm->g", dy, dy) + gap_y * gap_y * share
        self.mean[0, rows] += gap_x * n / total
        self.mean[1, rows] += gap_y * n / total
        self.n[rows] += n


class SlopeFit:
    """Least squares of log value on log T, with the slopes at both ends.

    Only points whose value is finite and above 0 enter.

    Args:
        horizons: number of values of T.
        groups: number of combinations of the other quantities.
        names: bounds to fit.
    """

    def __init__(self, horizons: int, groups: int, names: Iterable[str]) -> None:
        self._moments = {name: _Moments(groups) for name in names}
        # first two and last two usable points: [group, which, (x, y)], NaN where there is none
        self._first = {name: np.full((groups, 2, 2), np.nan) for name in self._moments}
        self._last = {name: np.full((groups, 2, 2), np.nan) for name in self._moments}
        self._vacuous = {name: np.full(groups, np.inf) for name in self._moments}

    def update(self, rows: slice, horizons: FloatArray, values: Mapping[str, FloatArray]) -> None:
        """Add a block: ``horizons`` ``[m]``, increasing, after earlier ones; values ``[g, m]``."""
        x = np.log(horizons)
        for name, moments in self._moments.items():
            value = values[name]
            usable = np.isfinite(value) & (value > 0)
            y = np.log(value, where=usable, out=np.zeros(value.shape))
            moments.merge(rows, x, y, usable)
            first, last = _ends(x, y, usable)
            self._first[name][rows] = _keep(np.concatenate([self._first[name][rows], first], 1), 0)
            self._last[name][rows] = _keep(np.concatenate([self._last[name][rows], last], 1), 2)
            over = value > REWARD_RANGE
            seen = np.where(over.any(axis=1), horizons[over.argmax(axis=1)], np.inf)
            self._vacuous[name][rows] = np.minimum(self._vacuous[name][rows], seen)

    def result(self, name: str) -> dict[str, Any]:
        """Columns ``n, slope, slope_se, slope_first, slope_last, vacuous_from``, each ``[groups]``.

        A slope needs two points and its standard error three; NaN otherwise.
        """
        m = self._moments[name]
        nan = np.full(m.n.shape, np.nan)
        slope = np.divide(m.xy, m.xx, where=(m.n > 1) & (m.xx > 0), out=nan.copy())
        residual = np.maximum(m.yy - np.nan_to_num(slope) * m.xy, 0.0)
        fitted = (m.n > 2) & (m.xx > 0)
        variance = np.divide(residual, (m.n - 2) * m.xx, where=fitted, out=nan.copy())
        vacuous = self._vacuous[name]
        return {
            "n": m.n.astype(np.int64),
            "slope": slope,
            "slope_se": np.sqrt(variance),
            "slope_first": _between(self._first[name]),
            "slope_last": _between(self._last[name]),
            "vacuous_from": np.where(np.isfinite(vacuous), vacuous, np.nan),
        }


def _ends(
    x: FloatArray, y: FloatArray, usable: npt.NDArray[np.bool_]
) -> tuple[FloatArray, FloatArray]:
    """First two and last two usable points of each row, ``[g, 2, 2]`` each; NaN where none."""
    count = usable.sum(axis=1)
    rows = np.arange(len(count))
    ends = np.full((2, len(count), 2, 2), np.nan)
    for side in (0, 1):
        flags = usable[:, ::-1].copy() if side else usable.copy()
        for which in (0, 1):
            index = flags.argmax(axis=1)
            flags[rows, index] = False
            at = x.size - 1 - index if side else index
            point = np.stack([x[at], y[rows, at]], axis=-1)
            point[count <= which] = np.nan
            ends[side, :, 1 - which if side else which] = point
    return ends[0], ends[1]


def _keep(points: FloatArray, start: int) -> FloatArray:
    """Of four points (NaN: none) the first two (``start=0``) or last two (``start=2``) present."""
    absent = np.isnan(points[:, :, 0])
    order = np.argsort(absent if start == 0 else ~absent, axis=1, kind="stable")
    return np.take_along_axis(points, order[:, start : start + 2, None], axis=1)


def _between(pair: FloatArray) -> FloatArray:
    """Slope through the two points of each row; NaN when there are fewer."""
    return (pair[:, 1, 1] - pair[:, 0, 1]) / (pair[:, 1, 0] - pair[:, 0, 0])
