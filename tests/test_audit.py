"""Logs and audit: exact enumeration on a tiny tree as oracle; hostile files; the shipped log."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from bounds.errors import InputError
from simulations.audit import audit
from simulations.logs import read_log
from trust_bounds.cli import app

T, V = 3, 2
REAL = Path(__file__).parents[1] / "paper_repro/data/smollm2_vllm-bf16_vs_hf-fp32.parquet"


def tree(seed: int, scale: float = 0.5) -> dict[tuple[int, ...], tuple[np.ndarray, np.ndarray]]:
    """Random (roll, theta) next-token laws at every context of a full tree."""
    rng = np.random.default_rng(seed)
    laws = {}
    for t in range(T):
        for context in itertools.product(range(V), repeat=t):
            z = rng.normal(size=V)
            roll, theta = np.exp(z), np.exp(z + scale * rng.normal(size=V))
            laws[context] = (roll / roll.sum(), theta / theta.sum())
    return laws


def exact(laws: dict[tuple[int, ...], tuple[np.ndarray, np.ndarray]]) -> dict[str, float]:
    """Kseq, sum of X_t, sum of D_t and the Oracle by enumerating every trajectory."""
    found = dict.fromkeys(("kl", "chi2", "tv", "oracle"), 0.0)
    for path in itertools.product(range(V), repeat=T):
        probability, ratio, linear = 1.0, 1.0, 0.0
        for t in range(T):
            p, q = laws[path[:t]]
            probability *= p[path[t]]
            ratio *= q[path[t]] / p[path[t]]
            linear += q[path[t]] / p[path[t]] - 1
        found["oracle"] += probability * abs(ratio - 1 - linear) / 2
        for t in range(T):
            p, q = laws[path[:t]]
            found["kl"] += probability * float(p @ np.log(p / q))
            found["chi2"] += probability * float((q - p) @ ((q - p) / p))
            found["tv"] += probability * float(np.abs(p - q).sum() / 2)
    return found


def sampled(
    laws: dict[tuple[int, ...], tuple[np.ndarray, np.ndarray]], n: int, seed: int
) -> dict[str, list[Any]]:
    """Columns of a log of ``n`` sequences drawn from roll, with exact divergences."""
    rng = np.random.default_rng(seed)
    columns: dict[str, list[Any]] = {
        name: [] for name in ("rollout_logprobs", "train_logprobs", "kl", "tv", "chi2")
    }
    for _ in range(n):
        row: dict[str, list[float]] = {name: [] for name in columns}
        context: tuple[int, ...] = ()
        for _ in range(T):
            p, q = laws[context]
            token = int(rng.random() > p[0])
            row["rollout_logprobs"].append(float(np.log(p[token])))
            row["train_logprobs"].append(float(np.log(q[token])))
            row["kl"].append(float(p @ np.log(p / q)))
            row["tv"].append(float(np.abs(p - q).sum() / 2))
            row["chi2"].append(float((q - p) @ ((q - p) / p)))
            context = (*context, token)
        for name in columns:
            columns[name].append(row[name])
    return columns


def write(path: Path, columns: dict[str, Any]) -> Path:
    pq.write_table(pa.table(columns), path)
    return path


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return write(tmp_path / "log.parquet", sampled(tree(0), 600, 1))


def test_intervals_cover_the_exact_values() -> None:
    """95% intervals over 40 independent logs: binomial(40, .95) falls below 32 with p < 1e-3."""
    import tempfile

    laws = tree(0)
    truth = exact(laws)
    hits = dict.fromkeys(("kl_seq", "tv_mean", "chi2_mean", "oracle"), 0)
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(40):
            path = write(Path(folder) / f"{seed}.parquet", sampled(laws, 300, seed))
            result = audit(path, n_boot=300)
            for name, value in (
                ("kl_seq", truth["kl"]),
                ("tv_mean", truth["tv"] / T),
                ("chi2_mean", truth["chi2"] / T),
            ):
                entry = result[name]
                hits[name] += entry.low <= value <= entry.high
            hits["oracle"] += result.oracle.low <= truth["oracle"] <= result.oracle.high
    assert min(hits.values()) >= 32


def test_sampled_log_probs_alone_estimate_the_same_means(tmp_path: Path) -> None:
    columns = sampled(tree(3), 4000, 5)
    truth = exact(tree(3))
    columns = {name: columns[name] for name in ("rollout_logprobs", "train_logprobs")}
    result = audit(write(tmp_path / "plain.parquet", columns))
    assert not result.exact_rows
    assert result["kl_seq"].value == pytest.approx(truth["kl"], rel=0.15)
    assert result["classical-kl"].value is None
    assert "not identifiable" in result["classical-kl"].note
    assert result["square-root"].value > result.oracle.value


def test_bounds_hold_and_nothing_is_certified(log: Path) -> None:
    result = audit(log)
    truth = exact(tree(0))["oracle"]
    for entry in result.bounds:
        assert entry.status in ("estimate", "missing")
        if entry.value is not None:
            assert entry.value >= truth * 0.9
    assert {entry.label for entry in (*result.quantities, result.oracle)} == {"estimate"}


def test_the_certificate_is_apart_from_the_estimates(log: Path) -> None:
    result = audit(log)
    truth = exact(tree(0))["oracle"]
    certificate = result.certificate
    assert truth < certificate.value < 0.2
    assert certificate.label == "certified at 95%"
    assert certificate.n == 600
    assert audit(log, confidence=0.9).certificate.value < certificate.value
    assert audit(log, max_length=50).certificate.value > certificate.value
    assert audit(log, ratio_floor=0.2).certificate.value < certificate.value
    document = result.to_dict()["certificate"]
    assert document["value"] == certificate.value
    assert any("not trained on it" in words for words in document["if"])
    assert "no response can be longer than T = 3" in str(result)


def test_certificates_cover_the_exact_oracle() -> None:
    """One-sided 80% over 60 independent logs: more than 22 misses has probability below 1e-3."""
    from simulations.logs import RolloutLog

    laws = tree(2, scale=1.0)
    truth = exact(laws)["oracle"]
    missed = 0
    for seed in range(60):
        columns = sampled(laws, 60, seed)
        roll, theta = (np.array(columns[name]) for name in ("rollout_logprobs", "train_logprobs"))
        mask = np.ones(roll.shape, dtype=bool)
        ids = tuple(str(i) for i in range(len(roll)))
        one = RolloutLog("tree", ids, mask, roll, theta, {}, {})
        missed += audit(one, n_boot=1, confidence=0.8).certificate.value < truth
    assert missed <= 22


def test_the_command_shows_what_the_certificate_rests_on(log: Path) -> None:
    shown = CliRunner().invoke(app, ["audit", str(log), "--bootstrap", "20"]).output
    assert "certified at 95%: <= 0." in shown
    assert "theta was fixed before the log was drawn" in shown
    shown = (
        CliRunner()
        .invoke(app, ["audit", str(log), "--bootstrap", "20", "--max-length", "4096"])
        .output
    )
    assert "vacuous: above the reward range" in shown
    assert "more than about" in shown


def test_reproducible_to_the_bit(log: Path) -> None:
    assert audit(log, seed=3).to_dict() == audit(log, seed=3).to_dict()
    assert audit(log, seed=3).oracle.low != audit(log, seed=4).oracle.low


def test_masked_and_padded_tokens_are_neutral(tmp_path: Path) -> None:
    columns = sampled(tree(0), 50, 1)
    plain = audit(write(tmp_path / "a.parquet", columns)).to_dict()
    widened = {name: [[*row, float("nan")] for row in rows] for name, rows in columns.items()}
    widened["response_mask"] = [[True] * T + [False]] * 50
    masked = audit(write(tmp_path / "b.parquet", widened)).to_dict()
    assert masked["oracle"] == plain["oracle"]
    assert masked["quantities"] == plain["quantities"]
    assert masked["tokens"] == plain["tokens"]


def test_ragged_rows_and_jsonl(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    rows = [
        {"sequence_id": "a", "rollout_logprobs": [-1.0, -0.5], "train_logprobs": [-1.1, -0.4]},
        {"sequence_id": "b", "rollout_logprobs": [-0.2], "train_logprobs": [-0.3]},
    ]
    path.write_text("\n".join(json.dumps(row) for row in rows))
    log = read_log(path)
    assert log.lengths.tolist() == [2, 1]
    np.testing.assert_allclose(log.log_ratio, [[-0.1, 0.1], [-0.1, 0.0]])
    assert audit(log).tokens == 3


def test_theta_without_mass_gives_infinite_kl_and_a_finite_oracle(tmp_path: Path) -> None:
    columns = {
        "rollout_logprobs": [[-0.5, -0.5]] * 30,
        "train_logprobs": [[-0.4, -np.inf], *[[-0.5, -0.6]] * 29],
    }
    result = audit(write(tmp_path / "inf.parquet", columns))
    assert result["k3"].value == np.inf
    assert np.isfinite(result.oracle.value)
    json.dumps(result.to_dict(), allow_nan=False)


def _broken(name: str, row: int, value: Any) -> dict[str, Any]:
    columns = sampled(tree(0), 5, 1)
    columns[name][row] = value
    return columns


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"rollout_logprobs": [[-1.0]]}, "train_logprobs is missing"),
        (_broken("kl", 2, [0.1, 0.1]), "row 2"),
        (_broken("train_logprobs", 1, [-0.1, float("nan"), -0.1]), "token 1"),
        (_broken("train_logprobs", 3, [-0.1, 0.7, -0.1]), "exponentiated"),
        (_broken("rollout_logprobs", 4, [-0.1, -np.inf, -0.1]), "roll sampled this token"),
        (_broken("kl", 0, [-0.1, 0.0, 0.0]), "sign"),
        (_broken("tv", 0, [1.5, 0.0, 0.0]), "at most 1"),
        (_broken("train_logprobs", 0, None), "null"),
        ({"rollout_logprobs": [["x"]], "train_logprobs": [["y"]]}, "list of numbers"),
        ({"rollout_logprobs": [-1.0], "train_logprobs": [-1.0]}, "list of numbers"),
        ({"rollout_logprobs": [[]], "train_logprobs": [[]]}, "no tokens"),
        (
            {
                "rollout_logprobs": [[-1.0]],
                "train_logprobs": [[-1.0]],
                "response_mask": [[False]],
            },
            "leaves no token",
        ),
    ],
)
def test_bad_rows_are_one_line(tmp_path: Path, columns: dict[str, Any], words: str) -> None:
    path = tmp_path / "bad.parquet"
    if columns.get("rollout_logprobs") == [[]]:
        kind = pa.list_(pa.float64())
        pq.write_table(
            pa.table({name: pa.array(v, type=kind) for name, v in columns.items()}), path
        )
    else:
        write(path, columns)
    result = CliRunner().invoke(app, ["audit", str(path), "--figure", str(tmp_path / "f.png")])
    assert result.exit_code == 2
    assert len(result.stderr.strip().splitlines()) == 1
    assert words in result.stderr
    assert "bad.parquet" in result.stderr
    assert not (tmp_path / "f.png").exists()


def test_bad_files(tmp_path: Path) -> None:
    whole = write(tmp_path / "w.parquet", sampled(tree(0), 5, 1)).read_bytes()
    (tmp_path / "cut.parquet").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "empty.parquet").write_bytes(b"")
    (tmp_path / "words.jsonl").write_text("not json\n")
    nothing = pa.array([], pa.list_(pa.float64()))
    pq.write_table(
        pa.table({"rollout_logprobs": nothing, "train_logprobs": nothing}),
        tmp_path / "none.parquet",
    )
    for name, words in (
        ("cut.parquet", "truncated"),
        ("empty.parquet", "empty"),
        ("words.jsonl", "readable"),
        ("none.parquet", "no rows"),
        ("absent.parquet", "does not exist"),
        (".", "folder"),
    ):
        with pytest.raises(InputError, match=words):
            read_log(tmp_path / name)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--bootstrap", "0"],
        ["--confidence", "1"],
        ["--seed", "-1"],
        ["--figure", "x.gif"],
        ["--max-length", "2"],
        ["--ratio-floor", "1"],
        ["--ratio-floor", "0.99"],
    ],
)
def test_bad_options(log: Path, arguments: list[str]) -> None:
    result = CliRunner().invoke(app, ["audit", str(log), *arguments])
    assert result.exit_code == 2
    assert result.stderr.startswith("error: ")


def test_swapped_columns_are_noticed(tmp_path: Path) -> None:
    columns = sampled(tree(1, scale=1.0), 2000, 1)
    swapped = {
        "rollout_logprobs": columns["train_logprobs"],
        "train_logprobs": columns["rollout_logprobs"],
    }
    assert any("swapped" in w for w in audit(write(tmp_path / "s.parquet", swapped)).warnings)
    assert not any("swapped" in w for w in audit(write(tmp_path / "o.parquet", columns)).warnings)


def test_the_shipped_log_is_what_its_provenance_says(tmp_path: Path) -> None:
    from simulations.models import sha256_of

    provenance = json.loads(REAL.with_suffix(".provenance.json").read_text())
    assert provenance["sha256"] == sha256_of(REAL)
    assert provenance["rollout"].startswith("vllm-bf16")
    log = read_log(REAL)
    assert log.mask.shape[0] >= 64
    assert (log.lengths == 128).all()
    assert REAL.stat().st_size < 3e6
    # exact per-context KL against the sampled k3, which is unbiased for it
    sampled_kl = (np.expm1(log.log_ratio) - log.log_ratio).mean(axis=1)
    difference = sampled_kl - log.columns["kl"].mean(axis=1)
    assert abs(difference.mean()) < 4 * difference.std() / np.sqrt(len(difference))
    # Pinsker and Cauchy-Schwarz at every visited context
    assert (log.columns["tv"] <= np.sqrt(log.columns["kl"] / 2) * (1 + 1e-6)).all()
    assert (log.columns["tv"] <= np.sqrt(log.columns["chi2"]) / 2 * (1 + 1e-6)).all()
    # |log rho| <= 2E, and TV <= tanh(E/2), for the measured logit half-range E
    E = log.columns["logit_half_range"]
    assert (np.abs(log.log_ratio) <= 2 * E + 1e-5).all()
    assert (log.columns["tv"] <= np.tanh(E / 2) + 1e-6).all()
    output = CliRunner().invoke(app, ["audit", str(REAL), "--json", "--bootstrap", "50"])
    document = json.loads(output.output)
    names = {row["name"]: row for row in document["bounds"]}
    assert names["square-root"]["vacuous"] is False
    assert names["unified"]["vacuous"] is True
    figure = tmp_path / "a.png"
    CliRunner().invoke(app, ["audit", str(REAL), "--figure", str(figure), "--bootstrap", "50"])
    assert figure.stat().st_size > 20_000
