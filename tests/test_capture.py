"""The capture pipeline on a tiny random Llama: scoring, resume, atomic write. No vLLM needed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

pytest.importorskip("transformers", reason="pip install 'trust-bounds[llm]'")

from paper_repro import capture_real_log as capturing
from simulations.models import sha256_of

VOCABULARY, TOKENS, SEQUENCES = 64, 6, 3


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model folder: 2 layers, 64 words, and a chat template."""
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    out = tmp_path_factory.mktemp("tiny")
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        initializer_range=0.5,
    )
    LlamaForCausalLM(config).save_pretrained(out)
    words = {"?": 0, "user": 1, "go": 2, **{f"w{i}": i for i in range(3, VOCABULARY)}}
    bare = Tokenizer(models.WordLevel(words, unk_token="?"))
    bare.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=bare, unk_token="?")
    tokenizer.chat_template = "{% for m in messages %}user {{ m['content'] }} {% endfor %}go"
    tokenizer.save_pretrained(out)
    return out


def _run(folder: Path, out: Path, *extra: str) -> None:
    options = ["--rollout", "hf-bf16", "--model", str(folder), "--out", str(out)]
    sizes = ["--n", str(SEQUENCES), "--max-tokens", str(TOKENS)]
    capturing.capture(capturing.parse([*options, *sizes, *extra]))


@pytest.fixture(scope="module")
def log(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("log") / "tiny.parquet"
    _run(folder, out)
    return out


def test_columns_and_metadata(log: Path) -> None:
    table = pq.read_table(log)
    assert table.num_rows == SEQUENCES
    assert table.schema.metadata[b"trust_bounds.schema"] == b"1"
    assert table.schema.metadata[b"trust_bounds.kl_direction"] == b"KL(rollout || train)"
    rows = table.to_pylist()
    lists = [name for name, value in rows[0].items() if isinstance(value, list)]
    assert {"token_ids", "rollout_logprobs", "train_logprobs", "kl", "tv"} <= set(lists)
    assert all(len(row[name]) == TOKENS for row in rows for name in lists)
    assert len({row["sequence_id"] for row in rows}) == SEQUENCES


def test_train_logprobs_come_from_a_full_forward_pass(log: Path, folder: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    sequences = capturing.prepare(folder, SEQUENCES, 0)
    for sequence, row in zip(sequences, pq.read_table(log).to_pylist(), strict=True):
        ids = torch.tensor([sequence["prompt_token_ids"] + row["token_ids"]])
        with torch.inference_mode():
            law = torch.log_softmax(model(ids).logits[0].double(), -1)
        first = len(sequence["prompt_token_ids"])
        want = [float(law[first - 1 + t, k]) for t, k in enumerate(row["token_ids"])]
        np.testing.assert_allclose(row["train_logprobs"], want, rtol=0, atol=1e-5)


def test_the_two_sides_are_close_and_consistent(log: Path) -> None:
    for row in pq.read_table(log).to_pylist():
        assert all(0 <= kl < 0.1 for kl in row["kl"])
        assert all(
            2 * tv * tv <= kl * (1 + 1e-9) for tv, kl in zip(row["tv"], row["kl"], strict=True)
        )
        gaps = np.subtract(row["rollout_logprobs"], row["train_logprobs"])
        assert (np.abs(gaps) <= 2 * np.asarray(row["logit_half_range"]) + 1e-5).all()


def test_provenance_is_beside_the_log_and_names_no_path(log: Path, folder: Path) -> None:
    text = log.with_suffix(".provenance.json").read_text()
    assert json.loads(text)["sha256"] == sha256_of(log)
    assert str(folder) not in text
    assert str(log.parent) not in text


def test_a_killed_run_resumes_to_the_same_log(
    log: Path, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "tiny.parquet"
    scored: list[str] = []
    real = capturing.score

    def dying(model: Any, sequence: dict[str, Any], rows_file: Path) -> dict[str, Any]:
        if len(scored) == 1:
            raise KeyboardInterrupt
        scored.append(sequence["id"])
        return real(model, sequence, rows_file)

    monkeypatch.setattr(capturing, "score", dying)
    with pytest.raises(KeyboardInterrupt):
        _run(folder, out)
    assert not out.exists()  # atomic: nothing under the final name yet
    assert not list(tmp_path.glob(".tmp-*"))

    def counting(model: Any, sequence: dict[str, Any], rows_file: Path) -> dict[str, Any]:
        scored.append(sequence["id"])
        return real(model, sequence, rows_file)

    monkeypatch.setattr(capturing, "score", counting)
    _run(folder, out)
    assert len(scored) == len(set(scored)) == SEQUENCES  # nothing is scored twice
    assert pq.read_table(out).equals(pq.read_table(log))


def test_a_failed_write_keeps_the_old_log(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "tiny.parquet"
    out.write_bytes(b"old")

    def broken(*_: Any, **__: Any) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(capturing.pq, "write_table", broken)
    with pytest.raises(OSError, match="disk full"):
        _run(folder, out)
    assert out.read_bytes() == b"old"


def test_unfinished_work_of_another_seed_is_not_reused(folder: Path, tmp_path: Path) -> None:
    work = ("--work", str(tmp_path / "work"))
    first, second, fresh = (tmp_path / f"{name}.parquet" for name in ("a", "b", "c"))
    _run(folder, first, *work, "--seed", "0")
    _run(folder, second, *work, "--seed", "50")
    _run(folder, fresh, "--seed", "50")
    tokens = [pq.read_table(path)["token_ids"].to_pylist() for path in (first, second, fresh)]
    assert tokens[1] == tokens[2] != tokens[0]


def test_prompts_are_sane() -> None:
    rows = [json.loads(line) for line in capturing.PROMPTS.read_text().splitlines()]
    assert len(rows) >= 64
    assert all(set(row) == {"id", "kind", "prompt"} and row["prompt"].strip() for row in rows)
    assert len({row["id"] for row in rows}) == len({row["prompt"] for row in rows}) == len(rows)
    kinds = [row["kind"] for row in rows]
    assert len(set(kinds)) == 3
    assert min(kinds.count(kind) for kind in set(kinds)) >= len(rows) // 4
