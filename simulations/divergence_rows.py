"""Exact token divergences between two full rows of logits, in float64."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from scipy.special import log_softmax

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


def divergence_rows(rollout: Any, train: Any, *, chunk: int = _CHUNK) -> dict[str, np.ndarray]:
    """Divergences at every position between roll's and theta's next-token laws.

    Args:
        rollout: ``[t, V]`` logits or log-probs of pi_roll, any float dtype; ``-inf`` is a token
            without mass.
        train: ``[t, V]`` the same for pi_theta.
        chunk: positions converted to float64 at once.

    Returns:
        float64 arrays ``[t]`` (``argmax_agree`` bool), nats:
        ``kl`` = KL(roll || train), ``kl_reverse`` = KL(train || roll), ``tv``,
        ``chi2`` = chi2(train || roll) = E_roll[(rho - 1)^2], ``logit_half_range`` = half the range
        of the logit difference over tokens with mass on both sides (the largest |logit difference|
        after removing the best common shift; ``inf`` when supports differ), log-prob of each
        side's own argmax, whether the argmaxes agree, and roll's entropy. Mass on one side only
        gives an infinite KL or chi2, never NaN.

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
        _chunk(rollout[i : i + chunk], train[i : i + chunk], i)
        for i in range(0, len(rollout), chunk)
    ]
    return {name: np.concatenate([part[name] for part in parts]) for name in COLUMNS}


def _chunk(rollout: np.ndarray, train: np.ndarray, start: int) -> dict[str, np.ndarray]:
    log_p = _normalised(rollout, "rollout", start)
    log_q = _normalised(train, "train", start)
    in_p, in_q = np.isfinite(log_p), np.isfinite(log_q)
    both = in_p & in_q
    difference = np.where(both, log_q, 0.0) - np.where(both, log_p, 0.0)
    p, q = np.exp(log_p), np.exp(log_q)
    only_p = np.where(in_p & ~in_q, p, 0.0).sum(-1)
    only_q = np.where(in_q & ~in_p, q, 0.0).sum(-1)
    # rho - 1; p (rho - 1 - log rho) and q (1/rho - 1 + log rho) are termwise nonnegative
    excess = _expm1(difference)
    kl = (np.where(both, p, 0.0) * _expm1_minus(difference)).sum(-1) + only_q
    kl_reverse = (np.where(both, q, 0.0) * _expm1_minus(-difference)).sum(-1) + only_p
    scaled = np.where(both, p, 0.0) * np.abs(excess)
    with np.errstate(over="ignore", invalid="ignore"):
        chi2 = np.where(scaled > 0, scaled * np.abs(excess), 0.0).sum(-1) + only_p
    high = np.where(both, difference, -np.inf).max(-1)
    low = np.where(both, difference, np.inf).min(-1)
    matched = (in_p == in_q).all(-1)
    top_p, top_q = log_p.argmax(-1), log_q.argmax(-1)
    return {
        "kl": np.where((in_p & ~in_q).any(-1), np.inf, kl),
        "kl_reverse": np.where((in_q & ~in_p).any(-1), np.inf, kl_reverse),
        "tv": np.minimum(0.5 * (scaled.sum(-1) + only_p + only_q), 1.0),
        "chi2": np.where((in_q & ~in_p).any(-1), np.inf, chi2),
        "logit_half_range": np.where(matched, 0.5 * (high - low), np.inf),
        "rollout_argmax_logprob": log_p.max(-1),
        "train_argmax_logprob": log_q.max(-1),
        "argmax_agree": top_p == top_q,
        "rollout_entropy": -(p * np.where(in_p, log_p, 0.0)).sum(-1),
    }


def _normalised(rows: np.ndarray, side: str, start: int) -> np.ndarray:
    rows = rows.astype(np.float64)
    bad = np.isnan(rows).any(-1) | (rows == np.inf).any(-1) | ~np.isfinite(rows).any(-1)
    if bad.any():
        raise InputError(
            f"{side} row {start + int(np.argmax(bad))} has NaN, +inf or no mass at all; "
            "give finite logits, with -inf for masked tokens"
        )
    normalised: np.ndarray = log_softmax(rows, axis=-1)
    return normalised


def _expm1(z: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):
        return np.expm1(z)


def _expm1_minus(z: np.ndarray) -> np.ndarray:
    """``exp(z) - 1 - z`` without cancellation: Taylor series where |z| < 1/4."""
    small = np.where(np.abs(z) < 0.25, z, 0.0)
    series = np.zeros_like(z)
    for n in range(15, 1, -1):
        series = (series + 1.0) * small / n
    return np.where(np.abs(z) < 0.25, series * small, _expm1(z) - z)
