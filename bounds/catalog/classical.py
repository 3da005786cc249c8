"""The classical trust-region bound (TRPO style), quadratic in the horizon."""

from __future__ import annotations

import sympy as sp

from bounds.catalog import sharpen
from bounds.quantities import T, delta, eps
from bounds.registry import TRM, Bound

TV = Bound(
    name="classical-tv",
    title="Classical (TV)",
    expression=2 * T * (T - 1) * eps**2,
    owner="paper",
    source=f"{TRM}, classical bound",
)
KL = Bound(
    name="classical-kl",
    title="Classical (KL)",
    expression=2 * T * (T - 1) * sp.Min(1, delta / 2),
    owner="paper",
    source=f"{TRM}, classical bound with Pinsker",
)
KL_SMALL = Bound(
    name="classical-kl-small",
    title="Classical (KL), small divergence",
    expression=T * (T - 1) * delta,
    owner="paper",
    source=f"{TRM}, classical bound",
    form="small",
)
ENTRIES = (TV, KL, KL_SMALL, sharpen(TV), sharpen(KL), sharpen(KL_SMALL))
