"""Pinsker-Marginal: Pinsker on the marginal law of the context, T^(3/2)."""

from __future__ import annotations

import sympy as sp

from bounds.catalog import sharpen
from bounds.derivations import (
    CAPPED_TOKEN_KL,
    CAPPED_TOKEN_TV,
    MARGINAL_KL,
    PINSKER_POSITIONS,
    TOKEN_KL,
    capped,
    chain,
    family,
)
from bounds.lemmas_sums import ROOT_SUM
from bounds.quantities import T, delta, delta_t, eps, eps_t, s, t
from bounds.registry import OURS, TRM, Bound

_MARGINAL = sp.Sum(sp.Min(1, sp.sqrt((t - 1) * delta / 2)), (t, 1, T))

KL = Bound(
    name="pinsker-marginal-kl",
    title="Pinsker-Marginal (KL)",
    expression=4 * sp.Min(1, sp.sqrt(delta / 2)) * _MARGINAL,
    owner="paper",
    source=f"{TRM}, Pinsker-Marginal bound",
    proof=family(CAPPED_TOKEN_KL, capped(MARGINAL_KL)),
)
TV = Bound(
    name="pinsker-marginal-tv",
    title="Pinsker-Marginal (TV)",
    expression=4 * sp.Min(1, eps) * _MARGINAL,
    owner="paper",
    source=f"{TRM}, Pinsker-Marginal bound, TV on the advantage",
    proof=family(CAPPED_TOKEN_TV, capped(MARGINAL_KL)),
)
KL_SMALL = Bound(
    name="pinsker-marginal-kl-small",
    title="Pinsker-Marginal (KL), small divergence",
    expression=sp.Rational(4, 3) * T ** sp.Rational(3, 2) * delta,
    owner="paper",
    source=f"{TRM}, Pinsker-Marginal bound",
    form="small",
    proof=family(TOKEN_KL, MARGINAL_KL, chain(ROOT_SUM)),
)
POSITIONWISE = Bound(
    name="pinsker-marginal-positionwise-sharp",
    title="Pinsker-Marginal, position-wise, range constant",
    expression=2
    * sp.Sum(
        eps_t[t] * sp.Min(1, sp.sqrt(sp.Sum(delta_t[s], (s, 1, t - 1)) / 2)),
        (t, 1, T),
    ),
    owner="ours",
    source=f"{OURS}: per-position maxima in place of delta and epsilon",
    form="position-wise",
    proof=family(capped(PINSKER_POSITIONS)),
)
ENTRIES = (KL, TV, KL_SMALL, sharpen(KL), sharpen(TV), sharpen(KL_SMALL), POSITIONWISE)
