"""Adaptive: mean divergence at each position times the best route for the future's TV."""

from __future__ import annotations

import sympy as sp

from bounds.catalog import sharpen
from bounds.derivations import adaptive
from bounds.quantities import D_t, T, delta, delta_t, eps, eps_t, s, t
from bounds.registry import OURS, TRM, Bound

ADAPTIVE = Bound(
    name="adaptive",
    title="Adaptive",
    expression=4
    * sp.Sum(D_t[t] * sp.Min(1, (T - t) * eps, sp.sqrt((T - t) * delta / 2)), (t, 1, T)),
    owner="paper",
    source=f"{TRM}, Adaptive bound",
    proof=adaptive(per_position=False),
)
POSITIONWISE = Bound(
    name="adaptive-positionwise-sharp",
    title="Adaptive, position-wise, range constant",
    expression=2
    * sp.Sum(
        D_t[t]
        * sp.Min(
            1,
            sp.Sum(eps_t[s], (s, t + 1, T)),
            sp.sqrt(sp.Sum(delta_t[s], (s, t + 1, T)) / 2),
        ),
        (t, 1, T),
    ),
    owner="ours",
    source=f"{OURS}: per-position maxima in the future's routes",
    form="position-wise",
    proof=adaptive(per_position=True),
)
ENTRIES = (ADAPTIVE, sharpen(ADAPTIVE), POSITIONWISE)
