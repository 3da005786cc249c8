"""Abstract quantities that appear in proofs beside the registry's inputs.

Each is a sympy symbol or an indexed symbol; its meaning on a concrete tree is in
:mod:`bounds.symbolic_tree`. Atoms in :data:`PATH` depend on the sampled sequence (or on a context
along it) and stay inside an expectation.
"""

from __future__ import annotations

from typing import Final

import sympy as sp

from bounds.quantities import Expectation, ell_t

E: Final = Expectation

#: J(theta) - J(roll) - L'.
Error: Final = sp.Symbol("Error", real=True)
#: Reward of the sampled sequence, in [0, 1].
R: Final = sp.Symbol("R", nonnegative=True)


class SupR(sp.Function):
    """Supremum over rewards in [0, 1]."""

    nargs = 1

    def _latex(self, printer: object, exp: object = None) -> str:
        body = printer._print(self.args[0])  # type: ignore[attr-defined]
        return rf"\sup_{{0 \le R \le 1}} {body}"


def _base(name: str, **assumptions: bool) -> sp.IndexedBase:
    return sp.IndexedBase(sp.Symbol(name, **(assumptions or {"nonnegative": True})))


# sequence level
gap_seq: Final = sp.Symbol("gap_seq", nonnegative=True)
klb_seq: Final = sp.Symbol("klb_seq", nonnegative=True)
# per position
G: Final = _base("G", real=True)
gmax: Final = _base("gmax")
TVd: Final = _base("TVd")
gap_d: Final = _base("gap_d")
klb_d: Final = _base("klb_d")
KLd: Final = _base("KLd")
gap_tok: Final = _base("gap_tok")
klb_tok: Final = _base("klb_tok")
kl_tok: Final = _base("kl_tok")
Vfut: Final = _base("Vfut")
Kfut: Final = _base("Kfut")
# along the sampled path
rho: Final = _base("rho")
B: Final = _base("B", real=True)
TVf: Final = _base("TVf")
gap_f: Final = _base("gap_f")
klb_f: Final = _base("klb_f")
KLf: Final = _base("KLf")
chi: Final = _base("chi")
root: Final = _base("root")
hel: Final = _base("hel")

#: Atoms that depend on the sampled sequence.
PATH: Final[frozenset[sp.Basic]] = frozenset(
    {R, *(base.label for base in (rho, B, TVf, gap_f, klb_f, KLf, chi, root, hel, ell_t))}
)

#: name -> (LaTeX, meaning in words)
MEANING: Final[dict[str, tuple[str, str]]] = {
    "Error": (r"\mathrm{Error}", "J(theta) - J(roll) - L'"),
    "R": ("R", "reward of the sequence, in [0, 1]"),
    "rho": (r"\rho", "importance ratio pi_theta/pi_roll of token t"),
    "G": ("G", "mean of g_t under theta's contexts minus its mean under roll's"),
    "gmax": (r"\bar g", "largest |g_t(c)| over contexts"),
    "TVd": (r"\mathrm{TV}^{d}", "total variation of the laws of context c_t"),
    "KLd": (r"\mathrm{KL}^{d}", "KL(roll || theta) of the laws of context c_t"),
    "gap_d": (r"\Delta^{d}", "P(A) - Q(A), A where roll's law of c_t exceeds theta's"),
    "klb_d": (r"\mathrm{kl}^{d}", "KL of the two-outcome laws of that event A"),
    "gap_tok": (r"\Delta", "P(A) - Q(A) for the token laws at the context that attains epsilon_t"),
    "klb_tok": (r"\mathrm{kl}^{A}", "KL of the two-outcome laws of that event"),
    "kl_tok": (r"\mathrm{kl}", "KL(roll || theta) of the token laws at that context"),
    "gap_seq": (r"\Delta_{\mathrm{seq}}", "P(A) - Q(A) for the laws of whole sequences"),
    "klb_seq": (r"\mathrm{kl}_{\mathrm{seq}}", "KL of the two-outcome laws of that event"),
    "B": ("B", "E_theta[R | c_(t+1)] - E_roll[R | c_(t+1)]"),
    "TVf": (r"\mathrm{TV}^{f}", "total variation of the laws of the future after c_(t+1)"),
    "KLf": (r"\mathrm{KL}^{f}", "KL(roll || theta) of the laws of the future after c_(t+1)"),
    "gap_f": (r"\Delta^{f}", "P(A) - Q(A) for the laws of the future"),
    "klb_f": (r"\mathrm{kl}^{f}", "KL of the two-outcome laws of that event"),
    "Vfut": (r"\overline{\mathrm{TV}}^{f}", "largest TVf over contexts c_(t+1)"),
    "Kfut": (r"\overline{\mathrm{KL}}^{f}", "largest KLf over contexts c_(t+1)"),
    "chi": (r"\chi^2", "E_roll[(rho_t - 1)^2 | c_t]"),
    "root": ("r", "square root of the importance ratio of token t"),
    "hel": ("h", "E_roll[(sqrt(rho_t) - 1)^2 | c_t], the token squared Hellinger distance"),
}


def on_path(expression: sp.Basic) -> bool:
    """Whether the expression depends on the sampled sequence outside an expectation."""
    if isinstance(expression, Expectation):
        return False
    if isinstance(expression, sp.Indexed):
        return expression.base.label in PATH
    if expression in PATH:
        return True
    return any(on_path(argument) for argument in expression.args)
