"""How fast are Markov MDPs in a batch? ``python -m benchmarks.markov``

One run, one machine, side by side: 4096 MDPs through ``markov_quantities`` (horizon doubling, and
the plain loop over positions), against numpy that takes one MDP after another through the same
recursions, position by position. Numpy is timed on a few MDPs and extrapolated, which the output
says; all must agree on those. Then one MDP at T = 10^6.

Exits 1 when the batched engine is not at least 50 times faster than numpy one by one.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import Any, Final

import numpy as np
import torch

from benchmarks.evaluate import _best_of
from simulations.markov import MarkovQuantities, markov_quantities

REQUIRED: Final = 50.0
_MDPS, _STATES, _TOKENS, _HORIZON, _PICKED = 4096, 4, 8, 1024, 8
#: What the numpy loop computes.
NAMES: Final = (
    *("J_roll", "J_theta", "surrogate_gain", "error"),
    *("kl_seq", "chi2_mean", "hel_seq", "hel_cross", "oracle_high"),
)


def instances(count: int, T: int, seed: int = 0) -> dict[str, Any]:
    """Random MDPs whose total reward is in [0, 1] and whose ``T chi2`` is near 1."""
    g = torch.Generator().manual_seed(seed)
    shape = (count, _STATES, _TOKENS)
    logits = torch.randn(shape, generator=g, dtype=torch.float64)
    noise = torch.randn(shape, generator=g, dtype=torch.float64) / T**0.5
    return {
        "log_roll": logits.log_softmax(-1),
        "log_theta": (logits + noise).log_softmax(-1),
        "next_state": torch.randint(0, _STATES, shape, generator=g),
        "reward": torch.rand(shape, generator=g, dtype=torch.float64) / T,
        "T": T,
    }


def one_by_one(mdps: dict[str, Any]) -> dict[str, np.ndarray]:
    """The quantities of :data:`NAMES` by numpy, one MDP after another."""
    rows = zip(
        *(mdps[k].numpy() for k in ("log_roll", "log_theta", "next_state", "reward")), strict=True
    )
    found = [_one(*row, mdps["T"]) for row in rows]
    return {name: np.array([row[name] for row in found]) for name in NAMES}


def _one(
    log_p: np.ndarray, log_q: np.ndarray, step: np.ndarray, r: np.ndarray, T: int
) -> dict[str, float]:
    p, q = np.exp(log_p), np.exp(log_q)
    d, rp, rq = q - p, np.sqrt(p), np.sqrt(q)
    gap = rq - rp
    affinity, square = rp * rq, gap * gap
    hel, chi2 = square.sum(1), (d * d / p).sum(1)
    kl = (p * (log_p - log_q)).sum(1)
    h21, h10 = 2 * rq * gap, rp * gap
    w22, w21, w20 = q * q / p, 2 * q * d / p, d * d / p
    V = D = U = E = K = X = G = h2 = h1 = h0 = w2 = w1 = w0 = np.zeros(len(p))
    for _ in range(T):
        ahead = r + V[step]
        moved = (d * ahead).sum(1)
        E = (d * D[step] + p * E[step]).sum(1)
        D, U = moved + (q * D[step]).sum(1), moved + (p * U[step]).sum(1)
        V = (p * ahead).sum(1)
        K, X = kl + (p * K[step]).sum(1), chi2 + (p * X[step]).sum(1)
        G = hel / 2 + (affinity * G[step]).sum(1)
        a, b = h2[step], h1[step]
        h0 = (square * a + h10 * b + p * h0[step]).sum(1)
        h1, h2 = (h21 * a + affinity * b).sum(1), hel + (q * a).sum(1)
        a, b = w2[step], w1[step]
        w0 = (w20 * a + d * b + p * w0[step]).sum(1)
        w1, w2 = (w21 * a + q * b).sum(1), chi2 + (w22 * a).sum(1)
    return {
        "J_roll": V[0],
        "J_theta": V[0] + D[0],
        "surrogate_gain": U[0],
        "error": E[0],
        "kl_seq": K[0],
        "chi2_mean": X[0] / T,
        "hel_seq": 2 * G[0],
        "hel_cross": h0[0],
        "oracle_high": 0.5 * np.sqrt(w0[0]),
    }


def _worst(found: MarkovQuantities, peer: dict[str, np.ndarray]) -> float:
    worst = 0.0
    for name in NAMES:
        ours = getattr(found, name)[:_PICKED].numpy()
        worst = max(worst, float((np.abs(ours - peer[name]) / np.abs(peer[name]).max()).max()))
    return worst


def main() -> int:
    """Run, print, and return the exit status."""
    mdps = instances(_MDPS, _HORIZON)
    part = {k: v[:_PICKED] if isinstance(v, torch.Tensor) else v for k, v in mdps.items()}
    slow, peer = _best_of(2, partial(one_by_one, part))
    whole = slow * _MDPS / _PICKED
    print(
        f"numpy, one by one: {_PICKED} MDPs (S = {_STATES}, A = {_TOKENS}, T = {_HORIZON}) in "
        f"{slow:.3f} s; extrapolated (not run) to {_MDPS}: {whole:,.1f} s"
    )
    ok, best = True, 0.0
    for method in ("doubling", "loop"):
        fast, found = _best_of(2, partial(markov_quantities, **mdps, method=method))
        worst = _worst(found, peer)
        best = max(best, whole / fast)
        print(
            f"markov_quantities, {method}: {_MDPS} MDPs in {fast:.3f} s, {whole / fast:,.0f} times "
            f"faster; largest relative difference {worst:.1e}"
        )
        ok &= worst < 1e-8
    million = instances(1, 10**6)
    took, found = _best_of(2, partial(markov_quantities, **million))
    print(f"one MDP at T = 10^6: {took * 1e3:.1f} ms, error {float(found.error[0]):.3e}")
    ok &= best >= REQUIRED
    print(f"{'pass' if ok else 'FAIL'}: required >= {REQUIRED:.0f} times, agreement < 1e-8")
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
