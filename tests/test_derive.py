"""Proofs: every step is checked, and no step or registry entry can be changed unnoticed."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import sympy as sp
import typer
from typer.testing import CliRunner

from bounds import registry
from bounds.algebra import canonical, nondecreasing, rewrite
from bounds.atoms import E, Error, TVd, gmax, rho
from bounds.checkers import Assembly, LeastMember, Routes, TreeIdentity
from bounds.latex import proof_latex, to_latex
from bounds.lemmas_tree import eq, le
from bounds.proof import Context, Proof, Step, try_on_trees, verify_step
from bounds.quantities import D_t, T, delta, eps, eps_t, t, x
from bounds.registry import Bound
from trust_bounds import derive

NAMES = registry.names()
SINGLE = tuple(b.name for b in registry.all_bounds() if b.role != "minimum")


def proof_of(bound: Bound) -> Proof:
    assert bound.proof is not None
    return bound.proof(bound)


# every entry is proven --------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_every_step_is_checked(name: str) -> None:
    report = proof_of(registry.get(name)).verify()
    unproven = [(i.step.key, i.result) for i in report.steps if i.result.status != "checked"]
    assert not unproven
    assert report.ok
    assert report.complete


@pytest.mark.parametrize("name", NAMES)
def test_last_step_is_the_registry_entry(name: str) -> None:
    bound = registry.get(name)
    last = proof_of(bound).steps[-1]
    assert last.statement.rhs == bound.expression
    assert isinstance(last.check, Assembly | LeastMember)


def test_every_statement_is_also_tried_on_random_trees() -> None:
    statements = {s.statement for name in NAMES for s in proof_of(registry.get(name)).steps}
    for statement in statements:
        trial = try_on_trees(statement)
        assert trial.compared >= 5, statement
        assert not trial.violation


# mutations --------------------------------------------------------------------------------------

Mutation = tuple[str, sp.Basic]


def mutations(statement: sp.Basic) -> Iterator[Mutation]:
    """``(kind, statement)`` with one constant, sign or exponent changed, anywhere."""
    left, right = statement.args
    func = statement.func
    for kind, change in (
        ("twice a side", lambda side: 2 * side),
        ("half a side", lambda side: side / 2),
        ("sign of a side", lambda side: -side),
        ("square of a side", lambda side: side**2),
    ):
        yield kind + ", left", func(change(left), right, evaluate=False)
        yield kind + ", right", func(left, change(right), evaluate=False)
    if isinstance(statement, sp.Le):
        yield "direction", func(right, left, evaluate=False)
    for kind, changed in _inside(left):
        yield kind, func(changed, right, evaluate=False)
    for kind, changed in _inside(right):
        yield kind, func(left, changed, evaluate=False)


def _inside(node: sp.Basic) -> Iterator[Mutation]:
    if isinstance(node, sp.Rational):
        yield "constant + 1", node + 1
        if node != 0:
            yield "constant * 2", 2 * node
            yield "constant / 2", node / 2
            yield "sign of a constant", -node
    elif isinstance(node, sp.Indexed):
        yield "square of a symbol", node**2
        yield "sign of a symbol", -node
        for kind, index in _inside(node.indices[0]):
            if index not in (t**2, -t, T**2, -T) and not node.indices[0].is_Symbol:
                yield kind, node.base[index]
    elif isinstance(node, sp.Symbol):
        yield "square of a symbol", node**2
        yield "sign of a symbol", -node
    elif isinstance(node, sp.Tuple):
        for place in (1, 2):
            for kind, limit in _inside(node[place]):
                yield f"limit: {kind}", sp.Tuple(*node[:place], limit, *node[place + 1 :])
    else:
        for place, argument in enumerate(node.args):
            for kind, changed in _inside(argument):
                args = [*node.args[:place], changed, *node.args[place + 1 :]]
                try:
                    yield kind, node.func(*args)
                except (ValueError, TypeError):
                    continue


def _same(one: sp.Basic, other: sp.Basic) -> bool:
    """Whether a mutation only rewrites the statement (``|-a| = |a|``)."""
    if type(one) is not type(other):
        return False
    try:
        return all(canonical(a) == canonical(b) for a, b in zip(one.args, other.args, strict=True))
    except (ValueError, TypeError):
        return False


def survives(proof: Proof, place: int, mutant: sp.Basic) -> bool:
    """Whether the proof still comes out as all-checked with this statement at ``place``."""
    steps = proof.steps
    changed = replace(steps[place], statement=mutant)
    earlier = {step.key: step for step in steps[:place]}
    if verify_step(changed, Context(earlier, proof.bound)).status != "checked":
        return False
    return Proof(proof.bound, (*steps[:place], changed, *steps[place + 1 :])).verify().complete


def _sites() -> dict[tuple[str, sp.Basic], tuple[str, int]]:
    """Each distinct (lemma, statement) with one proof and place where it occurs."""
    found: dict[tuple[str, sp.Basic], tuple[str, int]] = {}
    for name in SINGLE:
        for place, step in enumerate(proof_of(registry.get(name)).steps):
            found.setdefault((step.lemma, step.statement), (name, place))
    return found


SITES = _sites()
LEMMAS = sorted({lemma for lemma, _ in SITES})


@pytest.mark.parametrize("lemma", LEMMAS)
def test_one_mutation_of_every_kind_is_caught(lemma: str) -> None:
    done: set[str] = set()
    for (name_of_lemma, statement), (name, place) in SITES.items():
        if name_of_lemma != lemma:
            continue
        proof = proof_of(registry.get(name))
        for kind, mutant in mutations(statement):
            if kind in done or _same(mutant, statement):
                continue
            done.add(kind)
            assert not survives(proof, place, mutant), (name, kind, mutant)
    assert done


@pytest.mark.slow
@pytest.mark.parametrize("name", SINGLE)
def test_every_mutation_of_every_step_is_caught(name: str) -> None:
    proof = proof_of(registry.get(name))
    for place, step in enumerate(proof.steps):
        for kind, mutant in mutations(step.statement):
            if not _same(mutant, step.statement):
                assert not survives(proof, place, mutant), (step.key, kind, mutant)


@pytest.mark.parametrize("name", SINGLE)
def test_a_changed_registry_entry_is_caught(name: str) -> None:
    bound = registry.get(name)
    proof = proof_of(bound)
    context = Context({step.key: step for step in proof.steps[:-1]}, bound)
    kinds = set()
    for kind, expression in _inside(bound.expression):
        if canonical(expression) == canonical(bound.expression):
            continue
        kinds.add(kind)
        wrong = replace(bound, expression=expression)
        last = proof_of(wrong).steps[-1]
        assert last.statement.rhs == expression
        result = verify_step(last, replace(context, bound=wrong))
        assert result.status == "refuted", (kind, expression, result)
    assert kinds


def test_a_changed_minimum_is_caught() -> None:
    bound = registry.get("unified")
    args = bound.expression.args
    wrong = replace(bound, expression=sp.Min(args[0] / 2, *args[1:], evaluate=False))
    report = proof_of(wrong).verify()
    assert report.steps[-1].result.status == "refuted"


def test_a_member_with_another_statement_is_caught() -> None:
    proof = proof_of(registry.get("unified"))
    step = proof.steps[0]
    mutant = le(step.statement.lhs, step.statement.rhs / 2)
    assert not survives(proof, 0, mutant)


@pytest.mark.parametrize("name", SINGLE)
def test_a_dropped_step_is_caught(name: str) -> None:
    proof = proof_of(registry.get(name))
    for place in range(len(proof.steps) - 1):
        rest = Proof(proof.bound, (*proof.steps[:place], *proof.steps[place + 1 :]))
        assert not rest.verify().ok


def test_an_unused_step_is_caught() -> None:
    proof = proof_of(registry.get("square-root"))
    extra = next(s for s in proof_of(registry.get("classical-tv")).steps if s.key == "difference")
    report = Proof(proof.bound, (extra, *proof.steps)).verify()
    assert report.steps[-1].result.status == "refuted"


# rewriting --------------------------------------------------------------------------------------


def test_replacement_needs_monotonicity() -> None:
    z = sp.Dummy("z", nonnegative=True)
    assert nondecreasing(z * eps + sp.sqrt(z), z)
    assert not nondecreasing(1 - z, z)
    assert not nondecreasing(z * (eps - 1), z)
    assert not nondecreasing(sp.exp(-z), z)
    with pytest.raises(Exception, match="nondecreasing"):
        rewrite(1 - gmax[t], le(gmax[t], eps_t[t]))
    with pytest.raises(Exception, match="does not occur"):
        rewrite(TVd[t], le(gmax[t], eps_t[t]))


def test_canonical_takes_constants_out() -> None:
    total = sp.Sum(eps * TVd[t], (t, 1, T))
    assert canonical(total) == eps * sp.Sum(TVd[t], (t, 1, T))
    assert canonical(sp.Sum(eps, (t, 1, T))) == T * eps
    assert canonical(E(2 * eps * rho[t])) == 2 * eps * E(rho[t])
    assert canonical(sp.Product(1 + x, (t, 1, T))) == (1 + x) ** T


# statuses ---------------------------------------------------------------------------------------


def _with(step: Step) -> Proof:
    return Proof(registry.get("classical-tv"), (step,))


def test_what_is_not_proven_is_assumed() -> None:
    true_but_unproven = le(E(sp.Abs(rho[t] - 1)), 3 * D_t[t])
    step = Step("a", "a lemma", "A true inequality.", true_but_unproven, TreeIdentity())
    report = _with(step).verify()
    (item,) = report.steps
    assert item.result.status == "assumed"
    assert "assumed" in str(report)
    assert "   checked" not in str(report)
    assert not report.complete
    assert r"\emph{assumed}" in proof_latex(report)


def test_what_is_false_is_refuted_with_a_witness() -> None:
    step = Step("a", "a lemma", "False.", le(2 * D_t[t], D_t[t]), TreeIdentity())
    (item,) = _with(step).verify().steps
    assert item.result.status == "refuted"
    assert "T = " in item.result.detail
    false_identity = eq(E(sp.Abs(rho[t] - 1)), 3 * D_t[t])
    (item,) = _with(Step("a", "a lemma", "False.", false_identity, TreeIdentity())).verify().steps
    assert item.result.status == "refuted"


def test_routes_are_recomputed() -> None:
    unit = Step("unit", "l", "w", le(TVd[t], 1), TreeIdentity())
    check = Routes(TVd[t], (("unit",),))
    context = Context({"unit": unit}, None)
    good = Step("r", "l", "w", le(TVd[t], 1), check)
    bad = Step("r", "l", "w", le(TVd[t], sp.Rational(3, 2)), check)
    assert verify_step(good, context).status == "checked"
    assert verify_step(bad, context).status == "refuted"


def test_an_evaluated_statement_is_refuted() -> None:
    step = Step("a", "l", "w", sp.true, TreeIdentity())
    assert verify_step(step, Context({}, None)).status == "refuted"


# command ----------------------------------------------------------------------------------------


def _run(*args: str) -> tuple[int, str, str]:
    app = typer.Typer()
    app.callback()(lambda: None)
    derive.register(app)
    result = CliRunner().invoke(app, ["derive", *args])
    return result.exit_code, result.stdout, result.stderr


def test_command_prints_numbered_steps() -> None:
    code, out, _ = _run("square-root")
    assert code == 0
    assert "1. " in out
    assert "12. " in out
    assert out.count("lemma:") == 12
    assert "T^(1/2)" in out
    assert "12 checked, 0 assumed, 0 refuted" in out


def test_command_json() -> None:
    code, out, _ = _run("adaptive", "--format", "json")
    data = json.loads(out)
    assert code == 0
    assert data["refuted"] == data["assumed"] == 0
    assert {s["status"] for s in data["steps"]} == {"checked"}
    assert data["order_small"] == "T^(3/2)"


def test_command_all_lists_every_bound() -> None:
    code, out, _ = _run("--all")
    assert code == 0
    for name in NAMES:
        assert name in out


def test_unknown_name_is_one_line_with_suggestions() -> None:
    code, out, err = _run("adaptve")
    assert code == 2
    assert not out
    assert err.count("\n") == 1
    assert "adaptive" in err


def test_name_and_all_exclude_each_other() -> None:
    assert _run()[0] == 2
    assert _run("adaptive", "--all")[0] == 2


def test_refuted_step_gives_exit_code_1(monkeypatch: pytest.MonkeyPatch) -> None:
    bound = registry.get("coupling")
    wrong = replace(bound, expression=bound.expression / 2)
    monkeypatch.setattr(registry, "get", lambda name: wrong)
    code, out, _ = _run("coupling")
    assert code == 1
    assert "refuted" in out


# latex ------------------------------------------------------------------------------------------


def test_latex_names() -> None:
    assert to_latex(D_t[t]) == "{D}_{t}"
    assert to_latex(eps_t[t] + delta) == r"\delta + {\varepsilon}_{t}"
    assert r"\mathrm{Error}" in to_latex(Error)


@pytest.mark.parametrize(
    "name", ["adaptive", "martingale-chi2", "square-root", "oracle", "unified-ours"]
)
def test_latex_compiles(name: str, tmp_path: Path) -> None:
    if shutil.which("pdflatex") is None:
        pytest.skip("pdflatex is not installed")
    report = proof_of(registry.get(name)).verify()
    (tmp_path / "proof.tex").write_text(proof_latex(report), encoding="utf-8")
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "proof.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:]
    assert (tmp_path / "proof.pdf").stat().st_size > 0


@pytest.mark.parametrize("name", NAMES)
def test_latex_is_complete(name: str) -> None:
    report = proof_of(registry.get(name)).verify()
    text = proof_latex(report)
    assert text.count(r"\item \textbf") == len(report.steps)
    assert text.count(r"\begin") == text.count(r"\end{")
    assert text.rstrip().endswith(r"\end{document}")
