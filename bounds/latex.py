"""LaTeX of registry expressions, proof statements and whole proofs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import sympy as sp
from sympy.printing.latex import LatexPrinter
from sympy.printing.str import StrPrinter

from bounds.atoms import MEANING
from bounds.quantities import BY_SYMBOL

if TYPE_CHECKING:
    from bounds.proof import ProofReport


def _name(symbol: sp.Basic) -> str | None:
    if symbol in BY_SYMBOL:
        return BY_SYMBOL[symbol].latex
    found = MEANING.get(str(symbol))
    return found[0] if found else None


class _Printer(LatexPrinter):
    """sympy's printer with the names of :mod:`bounds.quantities`."""

    def _print_Symbol(self, expr: sp.Symbol, style: str = "plain") -> str:
        return _name(expr) or str(super()._print_Symbol(expr, style))

    def _print_Indexed(self, expr: sp.Indexed) -> str:
        index = ", ".join(self._print(i) for i in expr.indices)
        base = _name(expr.base.label) or str(self._print(expr.base.label))
        return f"{{{base}}}_{{{index}}}"

    def _print_Min(self, expr: sp.Min, exp: Any = None) -> str:
        args = sorted(expr.args, key=lambda e: (not e.is_number, sp.default_sort_key(e)))
        body = ", ".join(self._print(a) for a in args)
        text = rf"\min\left({body}\right)"
        return text if exp is None else f"{text}^{{{exp}}}"


class _Text(StrPrinter):
    """One-line text: ``=`` and ``<=`` between sides, ``E_roll[...]``, ``|...|``."""

    def _print_Relational(self, expr: sp.Basic) -> str:
        sign = "=" if isinstance(expr, sp.Eq) else "<="
        return f"{self._print(expr.lhs)} {sign} {self._print(expr.rhs)}"

    def _print_Abs(self, expr: sp.Abs) -> str:
        return f"|{self._print(expr.args[0])}|"

    def _print_Expectation(self, expr: sp.Expr) -> str:
        return f"E_roll[{self._print(expr.args[0])}]"

    def _print_SupR(self, expr: sp.Expr) -> str:
        return f"sup_R {self._print(expr.args[0])}"

    def _print_Sum(self, expr: sp.Sum) -> str:
        return self._series("sum", expr)

    def _print_Product(self, expr: sp.Product) -> str:
        return self._series("prod", expr)

    def _series(self, word: str, expr: sp.Sum) -> str:
        spans = ", ".join(
            f"{i}={self._print(low)}..{self._print(high)}" for i, low, high in reversed(expr.limits)
        )
        return f"{word}_({spans})[{self._print(expr.function)}]"


def to_latex(expression: sp.Basic) -> str:
    """LaTeX of an expression or relation, without math delimiters."""
    return str(_Printer().doprint(expression))


def plain(expression: sp.Basic) -> str:
    """One-line text of an expression or relation."""
    return str(_Text().doprint(expression))


_PREAMBLE = r"""\documentclass{article}
\usepackage[margin=2.5cm]{geometry}
\usepackage{amsmath,amssymb,amsthm}
\allowdisplaybreaks
\newtheorem{theorem}{Theorem}
\begin{document}
"""


def proof_latex(report: ProofReport) -> str:
    """A complete document: the bound as a theorem, its proof, and each step's check."""
    bound = report.bound
    last = report.steps[-1].step.statement
    lines = [
        _PREAMBLE.rstrip(),
        rf"\begin{{theorem}}[{words(bound.title)}]",
        r"For rewards in $[0,1]$,",
        _display(last),
        r"\end{theorem}",
    ]
    if bound.assumptions:
        lines.append(rf"\noindent Assumptions: {words('; '.join(bound.assumptions))}.\par")
    lines += [rf"\noindent Source: {words(bound.source)}.", r"\begin{proof}", r"\begin{enumerate}"]
    for item in report.steps:
        result = item.result
        how = "; ".join(part for part in (result.method, result.scope) if part and part != "none")
        lines += [
            rf"\item \textbf{{{words(item.step.lemma)}.}} {words(item.step.text)}",
            _display(item.step.statement),
            rf"\emph{{{result.status}}}" + (f" ({words(how)})." if how else "."),
        ]
        if result.detail:
            lines.append(words(result.detail) + ".")
    lines += [r"\end{enumerate}", r"\end{proof}"]
    used = {str(a) for item in report.steps for a in item.step.statement.free_symbols}
    meanings = [(tex, text) for name, (tex, text) in MEANING.items() if name in used]
    meanings += [
        (quantity.latex + ("_t" if quantity.per_position else ""), quantity.meaning)
        for symbol, quantity in BY_SYMBOL.items()
        if str(symbol) in used
    ]
    if meanings:
        lines += [r"\noindent Symbols:", r"\begin{itemize}"]
        lines += [rf"\item ${tex}$: {words(text)}" for tex, text in meanings]
        lines.append(r"\end{itemize}")
    lines.append(r"\end{document}")
    return "\n".join(lines) + "\n"


def _display(statement: sp.Basic) -> str:
    """A relation as a display; a long minimum is broken over lines."""
    right = statement.rhs
    sign = "=" if isinstance(statement, sp.Eq) else r"\le"
    left = to_latex(statement.lhs)
    if isinstance(right, sp.Min) and len(right.args) > _LONG:
        rows = r",\\ &\quad ".join(to_latex(argument) for argument in right.args)
        body = rf"{left} {sign} \min\bigl\{{ & {rows} \bigr\}}"
        return "\\begin{align*}\n" + body + "\n\\end{align*}"
    return "\\[\n" + f"{left} {sign} {to_latex(right)}" + "\n\\]"


#: Arguments of a minimum above which it is printed on several lines.
_LONG = 4

_SPECIAL = {
    "\\": r"\textbackslash{}",
    "_": r"\_",
    "^": r"\^{}",
    "%": r"\%",
    "&": r"\&",
    "#": r"\#",
    "$": r"\$",
    "{": r"\{",
    "}": r"\}",
    "~": r"\~{}",
    "<": r"$<$",
    ">": r"$>$",
    "|": r"$|$",
}


def words(text: str) -> str:
    """Plain text as LaTeX text."""
    return "".join(_SPECIAL.get(letter, letter) for letter in text)
