r"""A one-sided confidence bound on the Oracle from sampled ratios: certified at a level, if.

Let ``M`` be the product of a sequence's ratios, ``S = sum (rho_t - 1)`` and

    Z = max(1 - M, -S).

**Its mean is the Oracle, whatever the supports.** ``Error = E_roll[(M - 1 - S) R] + E_theta[R; roll
has no mass]``, the surrogate being what roll's samples give, ``sum E_roll[(rho_t - 1) R]``. With
``W = M - 1 - S``, the reward 1 on ``W < 0`` and 0 elsewhere makes ``-Error = E W_-``; the opposite
one makes ``Error = E W_+ + lost``, ``lost = 1 - E M``. As ``E W = -lost - E S``, the latter is
``E W_- - E S``, and it is the larger: ``E S <= 0``, for each ``E[rho_t - 1 | c_t]`` is minus the
mass that theta puts where roll puts none. Since ``W_- - S = max(-S, 1 - M)``, sup|Error| is
``E Z``. When roll has mass wherever theta has, ``E S = 0`` and ``E Z = E W_- = E|W|/2``.

**Z is bounded above**, by ``T``: ratios are nonnegative, so ``-S <= T`` and ``1 - M <= 1``. It is
unbounded below, and need not be: an upper bound on its mean uses the upper end alone.

**The bound.** ``Y_i = upper - z_i >= 0``. For independent ``z_i`` whose means average to ``m``,
each fixed ``c`` in (0, 1] gives ``E prod_i (1 - c + c Y_i / (upper - m)) <= 1``: the expectation
factorises and, by the inequality of arithmetic and geometric means, is largest when all means
agree, where it is 1. A fixed mixture over a grid of ``c`` keeps that, and by Markov's inequality
it reaches ``1/alpha`` with probability at most ``alpha``. It increases with ``m``; the bound is the
``m`` at which it reaches ``1/alpha``. Products do not see the order of the data. (Betting:
Waudby-Smith and Ramdas, JRSS-B 2024, arXiv 2010.09686; the mixture is a discrete version of Cover's
universal portfolio, Orabona and Jun, arXiv 2110.14099.)

The excess over the sample mean is about ``sqrt(2 Var(Z) L/n) + upper L/n``, ``L`` a little above
``log(1/alpha)``. **The second term cannot be avoided by any certificate from sampled ratios**: let
roll enter, with probability ``p``, a branch in which theta puts all of its mass where roll puts
none, and let the two agree elsewhere. On the branch every later ratio is 0 and ``Z = T - 1``, so
the Oracle is ``p (T - 1)``; yet with probability ``(1-p)^n`` all the log's ratios are 1. At any
``p < 1 - alpha^(1/n)`` that is more than ``alpha``, so on such a log a valid bound is at least
``(1 - alpha^(1/n)) (T - 1)``. (If roll must cover theta, give theta's tokens a probability under
roll that no log will show: ``T - 2`` instead.) Ours is at most ``(1 - (alpha/2)^(1/n)) T`` there.
Only knowledge from outside the log shrinks it: ``floor``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

import array_api_compat
import numpy as np

from bounds.errors import InputError
from bounds.special import Array

#: Relative slack for the rounding of sums that the caller made.
_SLACK: Final = 1e-6
#: Newton steps; it converges quadratically and every iterate is a valid bound.
_STEPS: Final = 200
_TOLERANCE: Final = 1e-12
_TWO_LOG_20: Final = 2 * math.log(20)

ASSUMPTIONS: Final = (
    "sequences are drawn independently from roll, given their prompts",
    "theta was fixed before the log was drawn (not trained on it), and no row was left out for "
    "its outcome",
    "the logged log-probs are the exact policies'",
)


@dataclass(frozen=True)
class OneSidedBound:
    """An upper confidence bound on a mean; prints well.

    Attributes:
        value: the bound: a float, or float64 ``[...]`` for batched data.
        estimate: the sample mean, same shape. Not certified.
        level: the probability that ``value`` is at least the true mean, at the least.
        n: independent units.
        upper: what no value can exceed.
        assumptions: what the level rests on, in words.
    """

    value: Any
    estimate: Any
    level: float
    n: int
    upper: float
    assumptions: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """``"certified at 95%"``, with the level."""
        return f"certified at {100 * self.level:g}%"

    def __str__(self) -> str:
        if isinstance(self.value, float):
            head = f"<= {self.value:.4g}, {self.label} (mean {self.estimate:.4g}, n = {self.n})"
        else:
            head = f"array{tuple(self.value.shape)} of bounds, {self.label} (n = {self.n})"
        return head + (", if " + "; ".join(self.assumptions) if self.assumptions else "")


def mean_upper_confidence(z: Any, upper: float, level: float = 0.95) -> OneSidedBound:
    """Upper confidence bound on the mean of independent values bounded above.

    Args:
        z: ``[n]`` or ``[..., n]`` (independent data sets), float64 numpy, torch or a list. Values
            at most ``upper``; ``-inf`` is allowed and counts as the lowest float. They need not be
            identically distributed: the mean is then that of their means.
        upper: finite; known before the data, never read off them.
        level: in (0, 1).

    Returns:
        A bound that is at least the mean with probability at least ``level``, at most ``upper``.
        It does not depend on the order of ``z``, and grows with every ``z_i`` and with ``level``.

    Raises:
        InputError: no values, NaN, a value above ``upper``, or options out of range.

    Source: betting, Waudby-Smith and Ramdas (arXiv 2010.09686); see the module's text.
    """
    if not 0 < level < 1:
        raise InputError(f"level is {level}; give one in (0, 1) such as 0.95")
    if not math.isfinite(upper):
        raise InputError(f"upper is {upper}; give a finite number that no value can exceed")
    values, xp = _as_float64("z", z)
    _refuse(xp, "z", values, xp.isnan(values), "not a number; drop or mend the row")
    _refuse(xp, "z", values, values > upper, f"above upper = {upper:g}; mend one of them")
    count = int(values.shape[-1])
    lowest = -float(np.finfo(np.float64).max) / 4
    values = xp.where(values < lowest, xp.full_like(values, lowest), values)
    target = -math.log1p(-level)
    gap = _log(xp, upper - values)
    log_gap = _solve(xp, gap, target, count)
    bound = upper - xp.exp(log_gap)
    estimate = upper - xp.exp(_log_mean(xp, gap))
    scalar = values.ndim == 1
    return OneSidedBound(
        float(bound) if scalar else bound,
        float(estimate) if scalar else estimate,
        float(level),
        count,
        float(upper),
        ("values are independent", f"none can exceed {upper:g}"),
    )


def oracle_upper_confidence(
    log_ratio_sum: Any,
    ratio_excess_sum: Any,
    T: int,
    *,
    level: float = 0.95,
    floor: float = 0.0,
    groups: Any = None,
) -> OneSidedBound:
    """Upper confidence bound on the Oracle, sup over rewards in [0, 1] of \\|Error\\|.

    Args:
        log_ratio_sum: ``log M``, the sum over a sequence's tokens of ``log theta - log roll``,
            nats, float64 ``[n]`` or ``[..., n]``; ``-inf`` where theta has no mass.
        ratio_excess_sum: ``S``, the sum of ``rho_t - 1``, same shape; ``inf`` on overflow.
        T: the longest length that a response *can* have (the generation limit), not the longest
            that was seen. Padding has ratio 1 and adds nothing to either sum.
        level: in (0, 1).
        floor: a number in [0, 1) that no ratio of any token at any context is below, known from
            outside the log (say ``exp(-2E)`` for a proven logit error E); it shrinks the range of
            ``Z`` from ``T`` to ``T (1 - floor)``.
        groups: one label a sequence ``[n]``, its prompt. Without it the unit is the sequence, and
            the bound is on the Oracle averaged over *the log's own prompts* (responses to one
            prompt are independent given it, so it holds with several a prompt). With it the
            unit is the prompt, by the mean of its sequences, each prompt weighing the same; the
            bound is on the Oracle of *the population of prompts*, of which these must be an
            independent sample.

    Returns:
        The bound in reward units. Roll need not cover theta's support.

    Raises:
        InputError: shapes, NaN, sums that no ratios can have, data below ``floor``, or options out
            of range.

    Source: ours; the module's text has the proof.
    """
    if not (isinstance(T, int | np.integer) and T >= 1):
        raise InputError(f"T is {T}; give the longest possible response, a whole number >= 1")
    if not 0 <= floor < 1:
        raise InputError(f"floor is {floor}; a lower bound on every ratio is in [0, 1)")
    z, xp = _worst_error(log_ratio_sum, ratio_excess_sum, T, floor)
    upper = T * (1 - floor)
    whose = "the log's own prompts"
    if groups is not None:
        z = _group_means(z, groups)
        whose = "the population of prompts, of which the log's are an independent sample"
    bound = mean_upper_confidence(xp.where(z > upper, xp.full_like(z, upper), z), upper, level)
    what = [f"no response can be longer than T = {T}"]
    if floor:
        what.append(f"no ratio can be below {floor:g}")
    return OneSidedBound(
        max(bound.value, 0.0)
        if isinstance(bound.value, float)
        else xp.where(bound.value < 0, xp.zeros_like(bound.value), bound.value),
        bound.estimate,
        bound.level,
        bound.n,
        bound.upper,
        (*ASSUMPTIONS, *what, f"it speaks of {whose}"),
    )


def _worst_error(
    log_ratio_sum: Any, ratio_excess_sum: Any, T: int, floor: float
) -> tuple[Array, Any]:
    """``Z = max(1 - M, -S)``, float64 ``[..., n]``, of checked sums."""
    log_m, xp = _as_float64("log_ratio_sum", log_ratio_sum)
    excess, _ = _as_float64("ratio_excess_sum", ratio_excess_sum)
    if tuple(log_m.shape) != tuple(excess.shape):
        raise InputError(
            f"log_ratio_sum has shape {tuple(log_m.shape)} but ratio_excess_sum "
            f"{tuple(excess.shape)}; give both one value a sequence"
        )
    for name, values in (("log_ratio_sum", log_m), ("ratio_excess_sum", excess)):
        _refuse(xp, name, values, xp.isnan(values), "not a number; drop or mend the row")
    _refuse(
        xp, "log_ratio_sum", log_m, log_m == float("inf"),
        "but roll sampled every token; check that the log-probs belong to the sampled tokens",
    )  # fmt: skip
    slack = _SLACK * (1 + xp.abs(xp.where(xp.isinf(log_m), xp.zeros_like(log_m), log_m)))
    _refuse(
        xp, "ratio_excess_sum", excess, excess < log_m - slack,
        "less than log_ratio_sum, though rho - 1 >= log rho; are the two swapped?",
    )  # fmt: skip
    least = -T * (1 - floor)
    why = f"and {T} ratios" + (f" of at least floor = {floor:g}" if floor else "")
    _refuse(
        xp, "ratio_excess_sum", excess, excess < least * (1 + _SLACK),
        f"{why} cannot sum to less than {least:g}; raise T or lower floor",
    )  # fmt: skip
    if floor:
        _refuse(
            xp, "log_ratio_sum", log_m, log_m < T * math.log(floor) - slack,
            f"{why} cannot have a smaller product than {floor:g}^{T}; lower floor",
        )  # fmt: skip
    one_minus_m = -xp.expm1(xp.where(log_m > 700, xp.full_like(log_m, 700.0), log_m))
    return xp.where(one_minus_m > -excess, one_minus_m, -excess), xp


def _group_means(z: Array, groups: Any) -> Array:
    labels = np.asarray(groups)
    if z.ndim != 1 or labels.shape != tuple(z.shape):
        raise InputError(
            f"groups has shape {labels.shape} but the log has {tuple(z.shape)} sequences; "
            "give one prompt label a sequence"
        )
    xp = array_api_compat.array_namespace(z)
    _, index, size = np.unique(labels, return_inverse=True, return_counts=True)
    totals = np.bincount(index, weights=np.asarray(z.tolist()), minlength=len(size))
    return xp.asarray(totals / size, dtype=xp.float64, device=array_api_compat.device(z))


def _grid(count: int) -> tuple[list[float], list[float]]:
    """Bets ``c`` and log weights, from the number of values alone.

    ``c = 1`` is best when the range decides (long sequences, few of them) and holds half of the
    mass; the halvings below it go down to the best at 95% for a standard deviation of
    ``upper - m``.
    """
    least = min(0.5, math.sqrt(_TWO_LOG_20 / count))
    halvings = max(1, math.ceil(-math.log2(least)))
    bets = [0.5**k for k in range(halvings + 1)]
    weights = [0.5] + [0.5 / halvings] * halvings
    return bets, [math.log(w) for w in weights]


def _solve(xp: Any, gap: Array, target: float, count: int) -> Array:
    """``log(upper - m)`` where the mixture reaches ``target``, ``[...]``.

    The log of the mixture is convex and decreasing in the unknown, so Newton's steps from the
    side above the target stay there: whenever it is stopped, the answer is a valid bound.
    """
    bets, weights = _grid(count)
    top = xp.max(gap, axis=-1)
    empty = xp.isinf(top)  # every value at the upper end: no gap to be found
    total = xp.sum(gap, axis=-1)
    unknown = (total + (weights[0] - target)) / count
    for bet, weight in zip(bets[1:], weights[1:], strict=True):
        start = top + ((count - 1) * math.log1p(-bet) + math.log(bet) + weight - target)
        unknown = xp.where(start > unknown, start, unknown)
    unknown = xp.where(empty, xp.zeros_like(unknown), unknown)
    for _ in range(_STEPS):
        height, slope = _log_mixture(xp, gap, unknown, bets, weights)
        done = empty | (height - target <= _TOLERANCE)
        step = xp.where(done, 0 * height, height - target) / xp.where(done, 1 + 0 * slope, slope)
        unknown = unknown + step
        if not bool(xp.any(step > 0)):
            break
    return xp.where(empty, top, unknown)


def _log_mixture(
    xp: Any, gap: Array, unknown: Array, bets: list[float], weights: list[float]
) -> tuple[Array, Array]:
    """Log of the mixture, and minus its derivative in ``unknown``; both ``[...]``."""
    d = gap - unknown[..., None]
    heights, slopes = [], []
    for bet, weight in zip(bets, weights, strict=True):
        if bet == 1:
            heights.append(weight + xp.sum(d, axis=-1))
            slopes.append(xp.full_like(unknown, float(gap.shape[-1])))
            continue
        share = d + math.log(bet)
        growth = xp.logaddexp(xp.full_like(d, math.log1p(-bet)), share)
        heights.append(weight + xp.sum(growth, axis=-1))
        slopes.append(xp.sum(xp.exp(share - growth), axis=-1))
    all_heights = xp.stack(heights)
    peak = xp.max(all_heights, axis=0)
    parts = xp.exp(all_heights - peak)
    mass = xp.sum(parts, axis=0)
    slope = xp.sum(parts * xp.stack(slopes), axis=0) / mass
    return peak + xp.log(mass), slope


def _log(xp: Any, values: Array) -> Array:
    """Log of nonnegative values, without a warning at 0."""
    zero = values <= 0
    safe = xp.log(xp.where(zero, xp.ones_like(values), values))
    return xp.where(zero, xp.full_like(values, -float("inf")), safe)


def _log_mean(xp: Any, gap: Array) -> Array:
    """``log mean exp`` over the last axis."""
    peak = xp.max(gap, axis=-1)
    peak = xp.where(xp.isinf(peak), xp.zeros_like(peak), peak)
    return peak + _log(xp, xp.mean(xp.exp(gap - peak[..., None]), axis=-1))


def _as_float64(name: str, values: Any) -> tuple[Array, Any]:
    if not array_api_compat.is_array_api_obj(values):
        try:
            values = np.asarray(values, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise InputError(f"{name} is not numeric; give one number a sequence") from error
    xp = array_api_compat.array_namespace(values)
    array = xp.astype(values, xp.float64)
    if array.ndim == 0 or array_api_compat.size(array) == 0:
        raise InputError(f"{name} holds no values; give one a sequence, at least one")
    return array, xp


def _refuse(xp: Any, name: str, values: Array, bad: Array, problem: str) -> None:
    """Raise at the first bad value."""
    if not bool(xp.any(bad)):
        return
    where = tuple(int(i[0]) for i in xp.nonzero(bad))
    index = ", ".join(str(i) for i in where)
    raise InputError(f"{name}[{index}] is {float(values[where]):g}, {problem}")
