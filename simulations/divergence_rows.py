"""Exact token divergences between two full rows of logits, in float64.

With ``x = log q - log p`` every divergence is a sum of termwise nonnegative parts, so that rows
that nearly agree keep their digits: ``KL(p || q) = sum p (e^x - 1 - x)``, since p and q both sum
to one. Each part is taken from the heavier side (p for x <= 1, q above), so no product of an
underflowed mass and an overflowed ratio is formed.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from bounds.errors import InputError

#: Positions held in float64 at once: two [chunk, V] arrays and temporaries.
_CHUNK: Final = 16

COLUMNS: Final = (
    "kl",
    "kl_reverse",
    "tv",
    "chi2",
    "logit_half_range",
    "rollout_argmax_logprob",
    "train_argmax_logprob",
    "argmax_agree",
    "rollout_entropy",
)

#: Stands for an infinite log-ratio; exp of its negative is zero, and 0 * _FAR is no NaN.
_FAR: Final = 1e300
_SMALL: Final = 0.25
_TERMS: Final = 15


def divergence_rows(
    rollout: Any, train: Any, *, logits: bool = False, chunk: int = _CHUNK
) -> dict[str, np.ndarray]:
    """Divergences at every position between roll's and theta's next-token laws.

    Args:
        rollout: ``[t, V]`` logits or log-probs of pi_roll, any float dtype; ``-inf`` is a token
            without mass.
        train: ``[t, V]`` the same for pi_theta.
        logits: both sides are true logits; adds ``max_abs_logit_diff``, the largest |logit
            difference| without any shift (``inf`` when supports differ).
        chunk: positions converted to float64 at once.

    Returns:
        float64 arrays ``[t]`` (``argmax_agree`` bool), nats:
        ``kl`` = KL(roll || train), ``kl_reverse`` = KL(train || roll), ``tv``,
        ``chi2`` = chi2(train || roll) = E_roll[(rho - 1)^2], ``logit_half_range`` = half the range
        of the logit difference over tokens with mass on both sides (the largest |logit difference|
        after removing the best common shift; ``inf`` when supports differ), log-prob of each
        side's own argmax (ties: the lowest id), whether the argmaxes agree, and roll's entropy.
        Mass on one side only gives an infinite KL or chi2, never NaN; ``chi2`` also reads ``inf``
        when it passes the largest float64.

    Raises:
        InputError: shapes differ, not 2-D, empty, NaN or +inf, or a row without mass.

    Source: definitions of TRM section 2 (arXiv 2512.23075) and DVP (arXiv 2512.23087).
    """
    rollout, train = np.asarray(rollout), np.asarray(train)
    if rollout.ndim != 2 or rollout.shape != train.shape or 0 in rollout.shape:
        raise InputError(
            f"rows have shapes {rollout.shape} and {train.shape}; give two equal, non-empty [t, V]"
        )
    parts = [
        _chunk(rollout[i : i + chunk], train[i : i + chunk], i, logits)
        for i in range(0, len(rollout), chunk)
    ]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _chunk(rollout: np.ndarray, train: np.ndarray, start: int, logits: bool) -> dict[str, Any]:
    zp, zq = _checked(rollout, "rollout", start), _checked(train, "train", start)
    in_p, in_q = zp > -np.inf, zq > -np.inf
    both, only_p, only_q = in_p & in_q, in_p & ~in_q, in_q & ~in_p
    lone_p, lone_q = only_p.any(-1), only_q.any(-1)
    log_p, top_p = _normalised(zp)
    log_q, top_q = _normalised(zq)
    p, q = np.exp(log_p), np.exp(log_q)
    gap = np.zeros_like(zp)
    np.subtract(zq, zp, out=gap, where=both)
    x = _log_ratio(gap, _log_mass(zq) - _log_mass(zp), p, q, both)
    x = np.where(both, x, np.where(only_q, _FAR, np.where(only_p, -_FAR, 0.0)))
    heavier = np.where(x > 0, q, p)
    chi2 = _chi2(x, p, log_q)
    high = np.where(both, gap, -np.inf).max(-1)
    low = np.where(both, gap, np.inf).min(-1)
    apart = lone_p | lone_q
    columns = {
        "kl": np.where(lone_p, np.inf, _kl_parts(x, p, q).sum(-1)),
        "kl_reverse": np.where(lone_q, np.inf, _kl_parts(-x, q, p).sum(-1)),
        "tv": np.minimum(-0.5 * (heavier * np.expm1(-np.abs(x))).sum(-1), 1.0),
        "chi2": np.where(lone_q, np.inf, chi2),
        "logit_half_range": np.where(apart, np.inf, 0.5 * (high - low)),
        "rollout_argmax_logprob": np.take_along_axis(log_p, top_p, -1)[:, 0],
        "train_argmax_logprob": np.take_along_axis(log_q, top_q, -1)[:, 0],
        "argmax_agree": (top_p == top_q)[:, 0],
        "rollout_entropy": -(p * np.where(in_p, log_p, 0.0)).sum(-1),
    }
    if logits:
        columns["max_abs_logit_diff"] = np.where(apart, np.inf, np.maximum(high, -low))
    return columns


def _checked(rows: np.ndarray, side: str, start: int) -> np.ndarray:
    rows = rows.astype(np.float64)
    bad = np.isnan(rows).any(-1) | (rows == np.inf).any(-1) | (rows == -np.inf).all(-1)
    if bad.any():
        raise InputError(
            f"{side} row {start + int(np.argmax(bad))} has NaN, +inf or no mass at all; "
            "give finite logits, with -inf for masked tokens"
        )
    return rows


def _rest(rows: np.ndarray, top: np.ndarray) -> np.ndarray:
    """Mass of all tokens but the argmax, over the argmax's: ``[t, 1]``, exact near zero."""
    ratio = np.exp(rows - np.take_along_axis(rows, top, -1))
    np.put_along_axis(ratio, top, 0.0, -1)
    return np.asarray(ratio.sum(-1, keepdims=True))


def _log_mass(rows: np.ndarray) -> np.ndarray:
    """``[t, 1]`` log-sum-exp."""
    top = rows.argmax(-1, keepdims=True)
    return np.take_along_axis(rows, top, -1) + np.log1p(_rest(rows, top))


def _normalised(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Log-probs ``[t, V]`` and argmax ``[t, 1]``; the argmax of a peaked row keeps its digits."""
    top = rows.argmax(-1, keepdims=True)
    return rows - np.take_along_axis(rows, top, -1) - np.log1p(_rest(rows, top)), top


def _log_ratio(
    gap: np.ndarray, shift: np.ndarray, p: np.ndarray, q: np.ndarray, both: np.ndarray
) -> np.ndarray:
    """``log q - log p`` on the common support from the logit difference ``gap``.

    Two logits that nearly agree subtract exactly; the rounding of ``shift`` is common to a row and
    is removed by one Newton step on ``sum q = sum p``.
    """
    x = gap - shift
    size = np.where(x > 0, q, p) * -np.expm1(-np.abs(x))
    signed = np.where(both, np.copysign(size, x), q - p).sum(-1, keepdims=True)
    return np.asarray(x - np.log1p(np.maximum(signed, -0.5)))


def _kl_parts(x: np.ndarray, p: np.ndarray, q: np.ndarray) -> np.ndarray:
    """``p (e^x - 1 - x)`` termwise, with ``q = p e^x``: never negative, never NaN."""
    light = np.minimum(x, 1.0)
    small = np.where(np.abs(x) < _SMALL, x, 0.0)
    series = np.zeros_like(x)
    for n in range(_TERMS, 1, -1):
        series = (series + 1.0) * small / n
    below = np.where(np.abs(x) < _SMALL, series * small, np.expm1(light) - light)
    heavy = np.maximum(x, 1.0)
    return np.where(x <= 1.0, p * below, q * (1.0 - (1.0 + heavy) * np.exp(-heavy)))


def _chi2(x: np.ndarray, p: np.ndarray, log_q: np.ndarray) -> np.ndarray:
    """``sum p (e^x - 1)^2``; above x = 1 as ``e^(log q + x) (1 - e^-x)^2``."""
    heavy = np.maximum(x, 1.0)
    with np.errstate(over="ignore", under="ignore"):
        above = np.exp(np.where(x > 1.0, log_q + heavy, 0.0)) * np.expm1(-heavy) ** 2
        parts = np.where(x <= 1.0, p * np.expm1(np.minimum(x, 1.0)) ** 2, above)
        return np.asarray(parts.sum(-1))
