"""The quantities that enter the bounds: symbols, meaning, units and legal range.

Every symbol that a registry expression may use is defined here, once. A quantity is either a
scalar of one policy pair (``kl_max``) or *per position* (``kl_mean_t``, an indexed symbol). A
per-position symbol that is given as a scalar means "this value bounds every position".

Direction: KL is ``KL(pi_roll || pi_theta)`` in nats, chi-square is
``chi2(pi_theta || pi_roll) = E_roll[(rho - 1)^2]``; total variation and the squared Hellinger
distance ``E_roll[(sqrt(rho) - 1)^2] = sum (sqrt(theta) - sqrt(roll))^2`` are symmetric.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal

import sympy as sp

Kind = Literal["count", "kl", "tv", "chi2", "hellinger", "quartic", "log-ratio"]

#: Horizon: the longest sequence length, in tokens.
T: Final = sp.Symbol("T", integer=True, positive=True)
#: Position indices (1-based) of outer and inner sums.
t: Final = sp.Symbol("t", integer=True, positive=True)
s: Final = sp.Symbol("s", integer=True, positive=True)
j: Final = sp.Symbol("j", integer=True, positive=True)

delta: Final = sp.Symbol("delta", nonnegative=True)
eps: Final = sp.Symbol("epsilon", nonnegative=True)
Kseq: Final = sp.Symbol("K_seq", nonnegative=True)
TVseq: Final = sp.Symbol("TV_seq", nonnegative=True)
x: Final = sp.Symbol("x", nonnegative=True)
Xbar: Final = sp.Symbol("Xbar", nonnegative=True)
eta: Final = sp.Symbol("eta", nonnegative=True)
Hbar: Final = sp.Symbol("Hbar", nonnegative=True)
Fbar: Final = sp.Symbol("Fbar", nonnegative=True)
Hseq: Final = sp.Symbol("H_seq", nonnegative=True)
Hcross: Final = sp.Symbol("H_cross", nonnegative=True)


def _indexed(name: str, **assumptions: bool) -> sp.IndexedBase:
    return sp.IndexedBase(sp.Symbol(name, **assumptions))


delta_t: Final = _indexed("delta_t", nonnegative=True)
eps_t: Final = _indexed("epsilon_t", nonnegative=True)
D_t: Final = _indexed("D_t", nonnegative=True)
KL_t: Final = _indexed("KLbar_t", nonnegative=True)
x_t: Final = _indexed("x_t", nonnegative=True)
X_t: Final = _indexed("X_t", nonnegative=True)
eta_t: Final = _indexed("eta_t", nonnegative=True)
H_t: Final = _indexed("H_t", nonnegative=True)
F_t: Final = _indexed("F_t", nonnegative=True)
#: Log importance ratio of each sampled token, one sequence per row.
ell_t: Final = _indexed("ell_t", real=True)


class Expectation(sp.Function):
    """``E_roll[.]`` over whole sequences; evaluated as the mean over the rows of a log."""

    nargs = 1

    def _latex(self, printer: Any, exp: object = None) -> str:
        body = printer._print(self.args[0])
        return rf"\mathbb{{E}}_{{\mathrm{{roll}}}}\left[{body}\right]"


@dataclass(frozen=True)
class Quantity:
    """One input of the bounds.

    Attributes:
        name: Python keyword, JSON key and (with dashes) command-line option.
        symbol: sympy symbol, or indexed base when ``per_position``.
        kind: which family of divergence it belongs to; sets its legal range.
        meaning: definition in words, with units.
        latex: how it is printed in formulas.
        per_position: whether it carries one value per token position.
    """

    name: str
    symbol: sp.Symbol | sp.IndexedBase
    kind: Kind
    meaning: str
    latex: str
    per_position: bool = False

    @property
    def option(self) -> str:
        """Command-line spelling, e.g. ``--kl-max``."""
        return "--" + (self.name if self.name == "T" else self.name.replace("_", "-"))

    @property
    def upper(self) -> float:
        """Largest legal value (1 for total variation, 2 for one squared Hellinger distance)."""
        if self.kind == "hellinger" and self.symbol is not Hcross:
            return 2.0
        return 1.0 if self.kind == "tv" else float("inf")


_ALL: tuple[Quantity, ...] = (
    Quantity("T", T, "count", "horizon: longest sequence length, in tokens", "T"),
    Quantity(
        "kl_max",
        delta,
        "kl",
        "largest token KL(roll || theta) over positions and contexts, nats",
        r"\delta",
    ),
    Quantity(
        "tv_max",
        eps,
        "tv",
        "largest token total variation over positions and contexts",
        r"\varepsilon",
    ),
    Quantity(
        "kl_seq",
        Kseq,
        "kl",
        "KL(roll || theta) of whole-trajectory laws = sum over t of KLbar_t, nats",
        r"K_{\mathrm{seq}}",
    ),
    Quantity(
        "tv_seq",
        TVseq,
        "tv",
        "total variation of whole-trajectory laws",
        r"\mathrm{TV}_{\mathrm{seq}}",
    ),
    Quantity(
        "chi2_max",
        x,
        "chi2",
        "largest token chi2(theta || roll) = E_roll[(rho-1)^2] over positions and contexts",
        "x",
    ),
    Quantity(
        "chi2_mean",
        Xbar,
        "chi2",
        "mean over positions of X_t = E_roll[(rho_t - 1)^2]",
        r"\bar X",
    ),
    Quantity(
        "hel_max",
        eta,
        "hellinger",
        "largest token squared Hellinger distance E_roll[(sqrt(rho)-1)^2] over positions and "
        "contexts",
        r"\eta",
    ),
    Quantity(
        "hel_mean",
        Hbar,
        "hellinger",
        "mean over positions of H_t, the mean token squared Hellinger distance under roll contexts",
        r"\bar H",
    ),
    Quantity(
        "quartic_mean",
        Fbar,
        "quartic",
        "mean over positions of F_t = E_roll[(sqrt(rho_t) - 1)^4]",
        r"\bar F",
    ),
    Quantity(
        "hel_seq",
        Hseq,
        "hellinger",
        "squared Hellinger distance of whole-trajectory laws, E_roll[(sqrt(M_T)-1)^2], "
        "M_T the product of all ratios",
        r"H_{\mathrm{seq}}",
    ),
    Quantity(
        "hel_cross",
        Hcross,
        "hellinger",
        "sum over t of E_roll[h_t(c_t) (sqrt(M_(t-1))-1)^2], h_t(c) the token squared Hellinger "
        "distance: its mean under theta's contexts plus that under roll's, summed, minus 2 H_seq",
        r"H_{\times}",
    ),
    Quantity(
        "kl_max_t",
        delta_t,
        "kl",
        "largest token KL(roll || theta) over contexts at position t, nats",
        r"\delta",
        True,
    ),
    Quantity(
        "tv_max_t",
        eps_t,
        "tv",
        "largest token total variation over contexts at position t",
        r"\varepsilon",
        True,
    ),
    Quantity(
        "tv_mean_t",
        D_t,
        "tv",
        "D_t: mean token total variation at t under roll contexts",
        "D",
        True,
    ),
    Quantity(
        "kl_mean_t",
        KL_t,
        "kl",
        "KLbar_t: mean token KL(roll || theta) at t under roll contexts, nats",
        r"\overline{\mathrm{KL}}",
        True,
    ),
    Quantity(
        "chi2_max_t",
        x_t,
        "chi2",
        "largest token chi2(theta || roll) over contexts at position t",
        "x",
        True,
    ),
    Quantity(
        "chi2_mean_t",
        X_t,
        "chi2",
        "X_t = E_roll[(rho_t - 1)^2] at position t",
        "X",
        True,
    ),
    Quantity(
        "hel_max_t",
        eta_t,
        "hellinger",
        "largest token squared Hellinger distance over contexts at position t",
        r"\eta",
        True,
    ),
    Quantity(
        "hel_mean_t",
        H_t,
        "hellinger",
        "H_t: mean token squared Hellinger distance at t under roll contexts",
        "H",
        True,
    ),
    Quantity(
        "quartic_mean_t",
        F_t,
        "quartic",
        "F_t = E_roll[(sqrt(rho_t) - 1)^4] at position t",
        "F",
        True,
    ),
    Quantity(
        "log_ratio",
        ell_t,
        "log-ratio",
        "log pi_theta - log pi_roll of each sampled token, one row per sequence, nats",
        r"\ell",
        True,
    ),
)


def constant(base: sp.IndexedBase) -> sp.Symbol:
    """The scalar that stands for a per-position symbol when it is the same at every position."""
    return sp.Symbol(f"const_{base.label.name}", nonnegative=True)


QUANTITIES: Final[dict[str, Quantity]] = {q.name: q for q in _ALL}
BY_SYMBOL: Final[dict[sp.Basic, Quantity]] = {
    (q.symbol.label if isinstance(q.symbol, sp.IndexedBase) else q.symbol): q for q in _ALL
}
#: Constant of a per-position quantity -> that quantity.
BY_CONSTANT: Final[dict[sp.Symbol, Quantity]] = {
    constant(q.symbol): q for q in _ALL if q.per_position
}

#: Hellinger distance of the context laws at t is at most ``2 - 2 prod_(j<t) (1 - eta_j/2)``; summed
#: with weights eta_t it bounds ``H_cross``.
PAST_HELLINGER: Final = sp.Sum(
    eta_t[t] * (2 - 2 * sp.Product(1 - eta_t[j] / 2, (j, 1, t - 1))), (t, 1, T)
)
