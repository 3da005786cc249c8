"""The reward-free Oracle: exact worst case over rewards, which no reward-free bound can beat."""

from __future__ import annotations

import sympy as sp

from bounds.derivations import oracle
from bounds.quantities import Expectation, T, ell_t, j, t
from bounds.registry import OURS, Bound

_W = sp.Sum(
    (sp.exp(ell_t[t]) - 1) * (sp.exp(sp.Sum(ell_t[j], (j, 1, t - 1))) - 1),
    (t, 1, T),
)

ENTRIES = (
    Bound(
        name="oracle",
        title="Oracle (worst reward)",
        expression=Expectation(sp.Abs(_W)) / 2,
        owner="ours",
        source=f"{OURS}: sup over rewards of |Error| = E_roll|W|/2",
        assumptions=("roll has mass wherever theta has",),
        kl_direction="none: importance ratios pi_theta/pi_roll",
        role="oracle",
        proof=oracle,
    ),
)
