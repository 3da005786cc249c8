"""Mixed: token divergence times the divergence of whole trajectories, linear in T."""

from __future__ import annotations

import sympy as sp

from bounds.catalog import sharpen
from bounds.derivations import (
    CAPPED_TOKEN_KL,
    CAPPED_TOKEN_TV,
    SEQUENCE_KL,
    SEQUENCE_TV,
    TOKEN_KL,
    capped,
    family,
)
from bounds.quantities import Kseq, T, TVseq, delta, eps
from bounds.registry import TRM, Bound

KL = Bound(
    name="mixed-kl",
    title="Mixed (KL)",
    expression=4 * T * sp.Min(1, sp.sqrt(delta / 2)) * sp.Min(1, sp.sqrt(Kseq / 2)),
    owner="paper",
    source=f"{TRM}, Mixed bound",
    proof=family(CAPPED_TOKEN_KL, capped(SEQUENCE_KL)),
)
TV = Bound(
    name="mixed-tv",
    title="Mixed (TV)",
    expression=4 * T * sp.Min(1, eps) * sp.Min(1, TVseq),
    owner="paper",
    source=f"{TRM}, Mixed bound, TV form",
    proof=family(CAPPED_TOKEN_TV, capped(SEQUENCE_TV)),
)
KL_SMALL = Bound(
    name="mixed-kl-small",
    title="Mixed (KL), small divergence",
    expression=2 * T * sp.sqrt(delta * Kseq),
    owner="paper",
    source=f"{TRM}, Mixed bound",
    form="small",
    proof=family(TOKEN_KL, SEQUENCE_KL),
)
ENTRIES = (KL, TV, KL_SMALL, sharpen(KL), sharpen(TV), sharpen(KL_SMALL))
