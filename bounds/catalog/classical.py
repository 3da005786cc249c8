"""The classical trust-region bound (TRPO style), quadratic in the horizon."""

from __future__ import annotations

import sympy as sp

from bounds.catalog import sharpen
from bounds.derivations import (
    CAPPED_TOKEN_KL,
    COUPLING,
    COUPLING_POSITIONS,
    TOKEN_KL,
    TOKEN_TV,
    chain,
    family,
)
from bounds.lemmas_sums import LINEAR_SUM, SQUARED_MINIMUM
from bounds.quantities import T, delta, eps
from bounds.registry import TRM, Bound

TV = Bound(
    name="classical-tv",
    title="Classical (TV)",
    expression=2 * T * (T - 1) * eps**2,
    owner="paper",
    source=f"{TRM}, classical bound",
    proof=family(TOKEN_TV, COUPLING, chain(LINEAR_SUM)),
)
KL = Bound(
    name="classical-kl",
    title="Classical (KL)",
    expression=2 * T * (T - 1) * sp.Min(1, delta / 2),
    owner="paper",
    source=f"{TRM}, classical bound with Pinsker",
    proof=family(
        CAPPED_TOKEN_KL, COUPLING_POSITIONS, CAPPED_TOKEN_KL, chain(LINEAR_SUM, SQUARED_MINIMUM)
    ),
)
KL_SMALL = Bound(
    name="classical-kl-small",
    title="Classical (KL), small divergence",
    expression=T * (T - 1) * delta,
    owner="paper",
    source=f"{TRM}, classical bound",
    form="small",
    proof=family(TOKEN_KL, COUPLING_POSITIONS, TOKEN_KL, chain(LINEAR_SUM)),
)
ENTRIES = (TV, KL, KL_SMALL, sharpen(TV), sharpen(KL), sharpen(KL_SMALL))
