"""Coupling: contexts agree until the first token that differs; T^2, then T once capped."""

from __future__ import annotations

import sympy as sp

from bounds.catalog import sharpen
from bounds.derivations import (
    CAPPED_TOKEN_TV,
    COUPLING,
    COUPLING_POSITIONS,
    TOKEN_TV,
    capped,
    chain,
    family,
)
from bounds.lemmas_sums import LINEAR_SUM
from bounds.quantities import T, eps, eps_t, s, t
from bounds.registry import OURS, TRM, Bound

FULL = Bound(
    name="coupling",
    title="Coupling",
    expression=4 * sp.Min(1, eps) * sp.Sum(sp.Min(1, (t - 1) * eps), (t, 1, T)),
    owner="paper",
    source=f"{TRM}, coupling bound",
    proof=family(CAPPED_TOKEN_TV, capped(COUPLING)),
)
SMALL = Bound(
    name="coupling-small",
    title="Coupling, small divergence",
    expression=2 * T * (T - 1) * eps**2,
    owner="paper",
    source=f"{TRM}, coupling bound",
    form="small",
    proof=family(TOKEN_TV, COUPLING, chain(LINEAR_SUM)),
)
POSITIONWISE = Bound(
    name="coupling-positionwise-sharp",
    title="Coupling, position-wise, range constant",
    expression=2 * sp.Sum(eps_t[t] * sp.Min(1, sp.Sum(eps_t[s], (s, 1, t - 1))), (t, 1, T)),
    owner="ours",
    source=f"{OURS}: per-position maxima in place of epsilon",
    form="position-wise",
    proof=family(capped(COUPLING_POSITIONS)),
)
ENTRIES = (FULL, SMALL, sharpen(FULL), sharpen(SMALL), POSITIONWISE)
