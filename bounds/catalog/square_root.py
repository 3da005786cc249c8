"""Square-root bound: O(sqrt(T)) in every regime, from means alone."""

from __future__ import annotations

import sympy as sp

from bounds.derivations import square_root
from bounds.quantities import T, TVseq, Xbar
from bounds.registry import OURS, Bound

ENTRIES = (
    Bound(
        name="square-root",
        title="Square-root",
        expression=sp.Min(1, TVseq) + sp.sqrt(T * Xbar) / 2,
        owner="ours",
        source=f"{OURS}: square-root bound",
        assumptions=("roll has mass wherever theta has",),
        kl_direction="KL(roll || theta) through TVseq <= sqrt(K_seq/2); chi2(theta || roll)",
        proof=square_root,
    ),
)
