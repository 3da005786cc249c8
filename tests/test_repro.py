"""``repro``, ``list`` and the README: what they promise is there and in step with the registry."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from bounds import registry
from paper_repro import worked_example
from trust_bounds.cli import app
from trust_bounds.list import markdown

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("repro") / "out"
    result = CliRunner().invoke(app, ["repro", "--out", str(folder)])
    assert result.exit_code == 0, result.output
    return folder


def test_manifest_lists_every_file_with_its_hash(out: Path) -> None:
    manifest = json.loads((out / "manifest.json").read_text())
    listed = {}
    for artefact in manifest["artefacts"]:
        listed.update(artefact["files"])
    assert {path.name for path in out.iterdir()} == {*listed, "manifest.json"}
    for name, digest in listed.items():
        assert hashlib.sha256((out / name).read_bytes()).hexdigest() == digest
    assert manifest["passed"] is True
    real = next(a for a in manifest["artefacts"] if a["name"] == "real_log")
    assert len(real["inputs"]) == 2


def test_paper_values_stand_beside_ours(out: Path) -> None:
    manifest = json.loads((out / "manifest.json").read_text())
    checks = {c["name"]: c for a in manifest["artefacts"] for c in a["checks"]}
    assert checks["classical-kl-small"]["paper"] == 1677.3
    assert checks["pinsker-marginal-kl-small"]["ours"] == pytest.approx(34.95, abs=0.005)
    assert checks["mixed-kl-small"]["ours"] == pytest.approx(8.19, abs=0.005)
    assert checks["martingale-chi2"]["kind"] == "approximation"


def test_a_disagreement_is_reported_and_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = [(n, v * 1.01, t, s) for n, v, t, s in worked_example.PRINTED]
    monkeypatch.setattr(worked_example, "PRINTED", wrong)
    monkeypatch.setattr("trust_bounds.repro.ARTEFACTS", ("worked_example",))
    result = CliRunner().invoke(app, ["repro", "--out", str(tmp_path / "o")])
    assert result.exit_code == 1
    assert "NO" in result.output


def test_a_failed_run_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def explode(_: Path) -> None:
        raise RuntimeError("half-way")

    monkeypatch.setattr("paper_repro.real_log.run", explode)
    result = CliRunner().invoke(app, ["repro", "--out", str(tmp_path / "o")])
    assert result.exit_code == 1
    assert list((tmp_path / "o").iterdir()) == []


def test_out_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("")
    result = CliRunner().invoke(app, ["repro", "--out", str(tmp_path / "f")])
    assert result.exit_code == 2
    assert "give a folder" in result.stderr


def test_readme_table_is_the_registry() -> None:
    text = (ROOT / "README.md").read_text()
    inside = text.split("<!-- bounds:begin -->\n")[1].split("<!-- bounds:end -->")[0]
    assert inside == markdown(), "run: trust-bounds list --format markdown"


def test_every_entry_is_complete() -> None:
    for bound in registry.all_bounds():
        assert bound.source
        assert bound.kl_direction
        assert bound.inputs or bound.role == "minimum"
        assert bound.proof is not None
        assert replace(bound, name="x").latex == bound.latex


def test_list_and_version() -> None:
    assert "mixed-kl" in CliRunner().invoke(app, ["list"]).output
    assert CliRunner().invoke(app, ["--version"]).output.startswith("trust-bounds ")


def test_imports_point_one_way() -> None:
    """paper_repro, trust_bounds -> figures, simulations -> bounds."""
    below = {"bounds": set(), "simulations": {"bounds"}, "figures": {"bounds"}}
    packages = ("bounds", "simulations", "figures", "paper_repro", "trust_bounds")
    for package, allowed in below.items():
        for path in (ROOT / package).rglob("*.py"):
            for line in path.read_text().splitlines():
                words = line.split()
                if words[:1] in (["from"], ["import"]) and len(words) > 1:
                    top = words[1].split(".")[0]
                    if top in packages:
                        assert top == package or top in allowed, f"{path.name}: {line.strip()}"
