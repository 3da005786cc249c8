"""Hellinger bounds: one formula from O(T) at small divergence to O(sqrt(T)) once capped.

With ``N_t`` the root of the product of ratios up to ``t`` and ``h_t`` the token squared Hellinger
distance, ``W = [(N_T - 1)^2 - sum h_t N_(t-1)] + 2 sum (sqrt(rho_t) - 1 + h_t/2)(N_(t-1) - 1)
- sum [(sqrt(rho_t) - 1)^2 - h_t]``. The first bracket is a difference of two nonnegative variables
with the same mean, ``H_seq <= 2``; the two sums are martingales. ``E N^2 = 1``, so nothing grows
exponentially, as the chi-square of a product does.
"""

from __future__ import annotations

import sympy as sp

from bounds.derivations import hellinger
from bounds.quantities import PAST_HELLINGER, Fbar, Hbar, Hcross, Hseq, T, eta_t, j, t
from bounds.registry import OURS, Bound

#: H_seq and the root of H_cross, from maxima.
_MAXIMA = (2 - 2 * sp.Product(1 - eta_t[j] / 2, (j, 1, T))) + sp.sqrt(PAST_HELLINGER)
_MEANS = Hseq + sp.sqrt(Hcross)
#: Half the mean size of the sum of (sqrt(rho_t) - 1)^2 - h_t, by its variance.
_QUARTIC = sp.sqrt(T * Fbar) / 2

MAXIMA = Bound(
    name="hellinger-max",
    title="Hellinger, maxima only",
    expression=_MAXIMA + sp.Sum(eta_t[t], (t, 1, T)),
    owner="ours",
    source=f"{OURS}: Hellinger bound from token maxima alone, O(T) without chi-square",
    kl_direction="KL(roll || theta) through eta <= delta",
    proof=hellinger(means=False, quartic=False),
)
INTERPOLATING = Bound(
    name="hellinger-interpolating",
    title="Hellinger, interpolating",
    expression=_MAXIMA + _QUARTIC,
    owner="ours",
    source=f"{OURS}: Hellinger bound, O(T) at small divergence and O(sqrt(T)) once capped",
    assumptions=("roll has mass wherever theta has",),
    kl_direction="KL(roll || theta) through eta <= delta; F_t <= chi2(theta || roll)",
    proof=hellinger(means=False, quartic=True),
)
MEANS = Bound(
    name="hellinger-means",
    title="Hellinger, means only",
    expression=_MEANS + T * Hbar,
    owner="ours",
    source=f"{OURS}: Hellinger bound from means alone, no maximum over contexts, no chi-square",
    kl_direction="KL(roll || theta) through H_seq, T Hbar <= K_seq",
    proof=hellinger(means=True, quartic=False),
)
MEANS_QUARTIC = Bound(
    name="hellinger-means-quartic",
    title="Hellinger, means only, interpolating",
    expression=_MEANS + _QUARTIC,
    owner="ours",
    source=f"{OURS}: Hellinger bound from means alone, in both regimes",
    assumptions=("roll has mass wherever theta has",),
    kl_direction="KL(roll || theta) through H_seq <= K_seq; F_t <= chi2(theta || roll)",
    proof=hellinger(means=True, quartic=True),
)
ENTRIES = (MAXIMA, INTERPOLATING, MEANS, MEANS_QUARTIC)
