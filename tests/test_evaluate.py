"""``evaluate``: published numbers, statuses, minima, inversion, formats, hostile input."""

from __future__ import annotations

import csv
import io
import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from bounds import registry
from bounds.errors import InputError
from bounds.evaluate import evaluate
from bounds.invert import largest_horizon, largest_kl
from trust_bounds.cli import app, main

PAPER = {"T": 4096, "kl_max": 1e-4, "kl_seq": 0.01}
NAMES = [
    "classical-kl",
    "classical-tv",
    "pinsker-marginal-kl",
    "pinsker-marginal-tv",
    "mixed-kl",
    "mixed-tv",
    "coupling",
    "adaptive",
    "unified",
    "classical-kl-small",
    "pinsker-marginal-kl-small",
    "mixed-kl-small",
    "coupling-small",
    "classical-kl-sharp",
    "classical-tv-sharp",
    "pinsker-marginal-kl-sharp",
    "pinsker-marginal-tv-sharp",
    "mixed-kl-sharp",
    "mixed-tv-sharp",
    "coupling-sharp",
    "adaptive-sharp",
    "martingale-chi2",
    "square-root",
    "cauchy-schwarz",
    "oracle",
    "unified-ours",
]


def run(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["evaluate", *arguments])


def table(*arguments: str) -> dict[str, dict[str, Any]]:
    result = run(*arguments, "--format", "json")
    assert result.exit_code == 0, result.output
    return {row["name"]: row for row in json.loads(result.output)["bounds"]}


def test_published_numbers() -> None:
    rows = table("--T", "4096", "--kl-max", "1e-4", "--kl-seq", "0.01")
    for form in ("", "-small"):
        assert round(rows[f"classical-kl{form}"]["value"], 1) == 1677.3
        assert round(rows[f"pinsker-marginal-kl{form}"]["value"], 2) == 34.95
        assert round(rows[f"mixed-kl{form}"]["value"], 2) == 8.19
    assert rows["unified"]["value"] == pytest.approx(8.192)
    assert round(rows["martingale-chi2"]["value"], 3) == 0.335
    assert rows["martingale-chi2"]["status"] == "approximation"


def test_every_promised_name_and_key_is_there() -> None:
    rows = table("--T", "10", "--kl-max", "0.01")
    assert set(NAMES) <= set(rows)
    for row in rows.values():
        assert {"name", "value", "order", "vacuous", "source", "status"} <= set(row)


def test_range_constant_halves_each_member() -> None:
    rows = table("--T", "300", "--kl-max", "0.003", "--kl-seq", "0.05")
    for name in list(rows):
        if f"{name}-sharp" in rows:
            assert rows[f"{name}-sharp"]["value"] == pytest.approx(rows[name]["value"] / 2)


def test_unified_is_the_least_and_never_takes_an_approximation() -> None:
    result = evaluate(**PAPER)
    paper = [float(e.value) for e in result if e.bound.owner == "paper" and e.bound.form == "full"
             and e.bound.role == "bound"]  # fmt: skip
    assert float(result["unified"].value) == min(paper)
    rough = evaluate(T=4096, kl_max=1e-4)
    assert float(rough["unified-ours"].value) > float(rough["martingale-chi2"].value)
    assert rough["martingale-chi2"].status == "approximation"
    given_chi2 = evaluate(**PAPER, chi2_max=2e-4)
    assert given_chi2["martingale-chi2"].status == "given"
    assert float(given_chi2["unified-ours"].value) == float(given_chi2["hellinger-means"].value)
    assert given_chi2.smallest is not None
    assert given_chi2.smallest.name == "hellinger-means"


def test_statuses() -> None:
    result = evaluate(T=100, kl_max=1e-3)
    assert result["pinsker-marginal-kl"].status == "given"
    assert result["classical-tv"].status == "derived"
    assert str(result["classical-tv"].inputs["tv_max"]) == "Pinsker"
    assert result["square-root"].status == "approximation"
    assert result["oracle"].status == "missing"
    assert result["oracle"].value is None
    only_tv = evaluate(T=100, tv_max=0.01)
    assert only_tv["coupling"].status == "given"
    assert only_tv["classical-kl"].status == "missing"
    assert only_tv["unified"].value is not None


def test_square_root_from_given_means() -> None:
    value = float(evaluate(T=400, kl_seq=0.02, chi2_mean=1e-4)["square-root"].value)
    assert value == pytest.approx(math.sqrt(0.01) + 0.5 * math.sqrt(400 * 1e-4))


@given(
    T=st.integers(1, 10**6),
    delta=st.floats(1e-10, 5),
    share=st.floats(0, 1),
)
def test_full_forms_never_exceed_small_forms(T: int, delta: float, share: float) -> None:
    result = evaluate(T=T, kl_max=delta, kl_seq=share * T * delta)
    for name in ("classical-kl", "pinsker-marginal-kl", "mixed-kl", "coupling"):
        assert float(result[name].value) <= float(result[f"{name}-small"].value) * (1 + 1e-12)
    assert float(result["adaptive"].value) <= float(result["pinsker-marginal-tv"].value) * (
        1 + 1e-9
    )


@settings(max_examples=15)
@given(delta=st.floats(1e-8, 1e-2), target=st.floats(0.05, 20))
def test_inverse_horizon_brackets_the_target(delta: float, target: float) -> None:
    names = ["classical-kl", "pinsker-marginal-kl", "mixed-kl", "coupling", "martingale-chi2"]
    for found in largest_horizon(target, names, kl_max=delta):
        assert found.value is not None
        T = found.value
        if T > 0:
            assert float(evaluate([found.name], T=T, kl_max=delta)[found.name].value) <= target
        assert float(evaluate([found.name], T=T + 1, kl_max=delta)[found.name].value) > target


def test_inverse_kl_closed_form() -> None:
    found = {e.name: e for e in largest_kl(1.0, ["classical-kl-small", "mixed-kl-small"], T=1000)}
    assert found["classical-kl-small"].value == pytest.approx(1 / (1000 * 999), rel=1e-9)
    # K_seq <= T delta is derived here, so the bound is 2 T^{3/2} delta
    assert found["mixed-kl-small"].value == pytest.approx(0.5 / 1000**1.5, rel=1e-9)


def test_target_on_the_command_line() -> None:
    rows = table("--T", "4096", "--kl-max", "1e-4", "--target", "1.0")
    assert rows["classical-kl"]["largest_T"] == 100
    assert rows["classical-kl"]["largest_kl_max"] == pytest.approx(1 / (4096 * 4095))
    without_T = table("--kl-max", "1e-4", "--target", "1.0")
    assert without_T["classical-kl"]["largest_T"] == 100


def test_table_marks_the_smallest_and_labels_the_approximation() -> None:
    output = run("--T", "4096", "--kl-max", "1e-4", "--kl-seq", "0.01").output
    marked = [line for line in output.splitlines() if "│ * │" in line]
    assert len(marked) == 1
    assert "hellinger-means" in marked[0]
    line = next(line for line in output.splitlines() if " martingale-chi2 " in line)
    assert "approximation" in line


def test_csv_and_latex() -> None:
    arguments = ["--T", "4096", "--kl-max", "1e-4"]
    rows = list(csv.DictReader(io.StringIO(run(*arguments, "--format", "csv").output)))
    assert {row["name"] for row in rows} == set(registry.names())
    latex = run(*arguments, "--format", "latex").output
    assert latex.count(r"\\") == len(registry.names()) + 1
    assert latex.count("{") == latex.count("}")


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        (["--T", "0", "--kl-max", "1e-4"], "--T"),
        (["--T", "-3", "--kl-max", "1e-4"], "--T"),
        (["--T", "2.5", "--kl-max", "1e-4"], "--T"),
        (["--T", "nan", "--kl-max", "1e-4"], "--T"),
        (["--T", "inf", "--kl-max", "1e-4"], "--T"),
        (["--T", "10", "--kl-max", "-1e-4"], "--kl-max"),
        (["--T", "10", "--kl-max", "nan"], "--kl-max"),
        (["--T", "10", "--tv-max", "1.5"], "--tv-max"),
        (["--T", "10", "--tv-seq", "2", "--tv-max", "1"], "--tv-seq"),
        (["--T", "10", "--kl-max", "1e-4", "--kl-seq", "0.01"], "--kl-seq"),
        (["--T", "10", "--chi2-max", "1e-4", "--chi2-mean", "0.1"], "--chi2-mean"),
        (["--T", "10"], "--kl-max"),
        (["--kl-max", "1e-4"], "--T"),
        (["--T", "10", "--kl-max", "1e-4", "--bounds", "nosuch"], "--bounds"),
        (["--T", "10", "--kl-max", "1e-4", "--bounds", ","], "--bounds"),
        (["--T", "10", "--kl-max", "1e-4", "--target", "0"], "--target"),
        (["--T", "10", "--kl-max", "1e-4", "--target", "nan"], "--target"),
    ],
)
def test_bad_input_is_one_line_and_exit_2(arguments: list[str], field: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    lines = result.stderr.strip().splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("error: ")
    assert field in lines[0]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["evaluate", "--T", "many", "--kl-max", "1"], "--T"),
        (["evaluate", "--no-such", "1"], "--no-such"),
        (["nonsense"], "nonsense"),
        (["audit"], "file"),
    ],
)
def test_unparsable_options_are_one_line_and_exit_2(
    arguments: list[str],
    words: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("sys.argv", ["trust-bounds", *arguments])
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("error: ")
    assert captured.err.count("\n") == 1
    assert words in captured.err


def test_main_passes_exit_codes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    for arguments, code in ((["evaluate", "--T", "0", "--kl-max", "1"], 2), (["--version"], 0)):
        monkeypatch.setattr("sys.argv", ["trust-bounds", *arguments])
        with pytest.raises(SystemExit) as stop:
            main()
        assert stop.value.code == code


def test_infinite_kl_leaves_the_tv_route_finite() -> None:
    rows = table("--T", "10", "--kl-max", "inf", "--tv-max", "0.01")
    assert rows["classical-kl-small"]["value"] is None
    assert rows["classical-kl-small"]["infinite"] is True
    assert rows["coupling"]["value"] == pytest.approx(4 * 0.01 * 0.01 * 45)


def test_unknown_quantity_and_lengths() -> None:
    with pytest.raises(InputError, match="no quantity"):
        evaluate(T=3, kl_maxx=1.0)
    with pytest.raises(InputError, match="differ in length"):
        evaluate(tv_mean_t=np.full(3, 0.1), kl_mean_t=np.full(4, 0.1))
    with pytest.raises(InputError, match="3 positions"):
        evaluate(T=4, tv_mean_t=np.full(3, 0.1))
    with pytest.raises(InputError, match="not numeric"):
        evaluate(T="many", kl_max=1.0)
    with pytest.raises(InputError, match="empty"):
        evaluate(T=np.asarray([]), kl_max=1.0)


def test_registry_names_near_miss() -> None:
    with pytest.raises(KeyError, match="mixed-kl"):
        registry.get("mixedkl")


def test_a_new_entry_is_all_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    from dataclasses import replace

    from bounds.catalog import coupling

    extra = replace(coupling.FULL, name="made-up", expression=coupling.FULL.expression * 3)
    monkeypatch.setattr(coupling, "ENTRIES", (*coupling.ENTRIES, extra))
    registry._load.cache_clear()
    try:
        rows = table("--T", "10", "--tv-max", "0.01")
        assert rows["made-up"]["value"] == pytest.approx(3 * rows["coupling"]["value"])
        assert "made-up" in CliRunner().invoke(app, ["list", "--format", "markdown"]).output
    finally:
        monkeypatch.undo()
        registry._load.cache_clear()
