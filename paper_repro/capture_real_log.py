"""Capture the real rollout log: sample with one engine, score with another, keep the divergences.

``python -m paper_repro.capture_real_log --vllm-python VENV/bin/python --out LOG.parquet`` samples
SmolLM2-135M-Instruct with vLLM in bf16 and scores the same tokens with Hugging Face transformers in
fp32 over the full vocabulary. It is resumable: a killed run keeps what was sampled and scored in
``--work`` and loses at most one batch. ``--rollout hf-bf16`` samples with transformers instead.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bounds.errors import InputError
from simulations.divergence_rows import COLUMNS, divergence_rows
from simulations.files import atomic_path
from simulations.models import (
    LICENCE,
    MODEL_NAME,
    PACKAGE,
    PACKAGE_VERSION,
    SHA256,
    WEIGHTS_SHA256,
    sha256_of,
    smollm2_135m,
)

HERE: Final = Path(__file__).parent
PROMPTS: Final = HERE / "data" / "prompts.jsonl"
WORKER: Final = HERE.parent / "simulations" / "vllm_worker.py"
KL_DIRECTION: Final = "KL(rollout || train)"


def prepare(model: Path, n: int, seed: int, prompts: Path = PROMPTS) -> list[dict[str, Any]]:
    """``n`` sequences to sample: prompts in order, repeated with new seeds, as token ids."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model)
    entries = [json.loads(line) for line in prompts.read_text().splitlines() if line.strip()]
    if not entries:
        raise InputError(f"{prompts} holds no prompts; give one JSON object with id, prompt a line")
    sequences = []
    for i in range(n):
        entry = entries[i % len(entries)]
        text = tokenizer.apply_chat_template(
            [{"role": "user", "content": entry["prompt"]}],
            add_generation_prompt=True,
            tokenize=False,
        )
        sequences.append(
            {
                "id": f"{entry['id']}-s{i // len(entries)}",
                "prompt_id": entry["id"],
                "prompt": entry["prompt"],
                "prompt_token_ids": tokenizer(text, add_special_tokens=False)["input_ids"],
                "seed": seed + i,
            }
        )
    return sequences


def sample_vllm(python: Path, request: dict[str, Any], work: Path) -> None:
    """Run the vLLM worker in its own Python until every sequence has its rows.

    Raises:
        RuntimeError: the worker failed; names its log.
    """
    path, log = work / "request.json", work / "vllm.log"
    path.write_text(json.dumps(request))
    environment = {**os.environ, "VLLM_CPU_KVCACHE_SPACE": "2"}
    environment.pop("PYTHONPATH", None)
    with log.open("ab") as stream:
        done = subprocess.run(
            [str(python), str(WORKER), str(path)], stdout=stream, stderr=stream, env=environment
        )
    if done.returncode:
        raise RuntimeError(f"the vLLM worker exited with {done.returncode}; see {log}")


def sample_hf(model: Any, request: dict[str, Any], work: Path) -> None:
    """Sample with transformers (the fall-back), writing the same files as the vLLM worker."""
    import torch

    (work / "engine.json").write_text(json.dumps({"transformers": version("transformers")}))
    for sequence in request["sequences"]:
        target = work / f"{sequence['id']}.npz"
        if target.exists():
            continue
        generator = torch.Generator().manual_seed(sequence["seed"])
        inputs = torch.tensor([sequence["prompt_token_ids"]])
        rows, tokens, cache = [], [], None
        with torch.inference_mode():
            for _ in range(request["max_tokens"]):
                out = model(inputs, past_key_values=cache, use_cache=True)
                cache = out.past_key_values
                row = torch.log_softmax(out.logits[0, -1].float(), -1)
                inputs = torch.multinomial(row.exp(), 1, generator=generator)[None]
                rows.append(row.numpy())
                tokens.append(int(inputs))
        token_ids, dense = np.asarray(tokens, dtype=np.int32), np.stack(rows)
        temporary = work / f".{sequence['id']}.tmp.npz"
        np.savez(
            temporary,
            token_ids=token_ids,
            logprobs=dense[np.arange(len(token_ids)), token_ids],
            rows=dense,
        )
        temporary.replace(target)


def score(model: Any, sequence: dict[str, Any], rows_file: Path) -> dict[str, Any]:
    """Score one sampled sequence with the training engine over the full vocabulary.

    Args:
        model: causal language model in the dtype to score in.
        sequence: as made by :func:`prepare`.
        rows_file: ``.npz`` of the sampler: ``token_ids`` [t], ``logprobs`` [t], ``rows`` [t, V].

    Returns:
        The log's row: token ids, both log-probs, and :data:`simulations.divergence_rows.COLUMNS`.
    """
    import torch

    with np.load(rows_file) as held:
        token_ids, logprobs, rows = held["token_ids"], held["logprobs"], held["rows"]
    prompt = sequence["prompt_token_ids"]
    with torch.inference_mode():
        ids = torch.tensor([[*prompt, *token_ids.tolist()]])
        logits = model(ids[:, :-1]).logits[0, len(prompt) - 1 :].float()
    train = torch.log_softmax(logits.double(), -1).numpy()
    record: dict[str, Any] = {
        "sequence_id": sequence["id"],
        "prompt_id": sequence["prompt_id"],
        "prompt": sequence["prompt"],
        "token_ids": token_ids.tolist(),
        "response_mask": [True] * len(token_ids),
        "rollout_logprobs": logprobs.astype(np.float64).tolist(),
        "train_logprobs": train[np.arange(len(token_ids)), token_ids].tolist(),
    }
    for name, values in divergence_rows(rows[:, : train.shape[1]], train).items():
        record[name] = values.tolist()
    return record


def table_of(records: Sequence[dict[str, Any]], metadata: dict[str, str]) -> pa.Table:
    """The log as an Arrow table: one row a sequence, one list a per-token column."""
    exact = ("kl", "kl_reverse", "tv", "chi2")
    fields = [
        pa.field("sequence_id", pa.string()),
        pa.field("prompt_id", pa.string()),
        pa.field("prompt", pa.string()),
        pa.field("token_ids", pa.list_(pa.int32())),
        pa.field("response_mask", pa.list_(pa.bool_())),
        pa.field("rollout_logprobs", pa.list_(pa.float32())),
        pa.field("train_logprobs", pa.list_(pa.float32())),
    ]
    for name in COLUMNS:
        kind = (
            pa.bool_()
            if name == "argmax_agree"
            else pa.float64()
            if name in exact
            else pa.float32()
        )
        fields.append(pa.field(name, pa.list_(kind)))
    return pa.Table.from_pylist(list(records), schema=pa.schema(fields, metadata=metadata))


def weights_sha256(folder: Path) -> str:
    """SHA-256 of a model folder's safetensors: the file's own, or that of the list of several."""
    digests = [sha256_of(path) for path in sorted(folder.glob("*.safetensors"))]
    if not digests:
        raise InputError(f"{folder} holds no .safetensors file; give a Hugging Face model folder")
    return (
        digests[0] if len(digests) == 1 else hashlib.sha256(" ".join(digests).encode()).hexdigest()
    )


def fingerprint(
    arguments: argparse.Namespace, weights: str, sequences: Sequence[dict[str, Any]]
) -> str:
    """Names what a run samples, so that unfinished work of another run is never reused."""
    key = [arguments.rollout, arguments.max_tokens, arguments.batch, weights, list(sequences)]
    return hashlib.sha256(json.dumps(key).encode()).hexdigest()[:16]


def cpu_model() -> str:
    """The CPU's name, as the system reports it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())


def capture(arguments: argparse.Namespace) -> None:
    """The whole pipeline; see the module's docstring."""
    import torch
    from rich.progress import track
    from transformers import AutoModelForCausalLM

    out: Path = arguments.out
    folder = arguments.model or smollm2_135m()
    weights = weights_sha256(folder)
    sequences = prepare(folder, arguments.n, arguments.seed)
    root: Path = arguments.work or out.with_suffix(".work")
    work = root / fingerprint(arguments, weights, sequences)
    work.mkdir(parents=True, exist_ok=True)
    request = {
        "model": str(folder),
        "folder": str(work),
        "dtype": "bfloat16",
        "max_model_len": 512,
        "batch": arguments.batch,
        "seed": arguments.seed,
        "max_tokens": arguments.max_tokens,
        "sequences": [s for s in sequences if not (work / f"{s['id']}.json").exists()],
    }
    if request["sequences"]:
        if arguments.rollout == "vllm-bf16":
            sample_vllm(arguments.vllm_python, request, work)
        else:
            sampler = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16).eval()
            sample_hf(sampler, request, work)
    scorer = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    for sequence in track(
        sequences, description="scoring", disable=not sys.stderr.isatty(), transient=True
    ):
        target = work / f"{sequence['id']}.json"
        if target.exists():
            continue
        record = score(scorer, sequence, work / f"{sequence['id']}.npz")
        temporary = work / f".{sequence['id']}.tmp"
        temporary.write_text(json.dumps(record))
        temporary.replace(target)
        (work / f"{sequence['id']}.npz").unlink()
    records = [json.loads((work / f"{s['id']}.json").read_text()) for s in sequences]
    engine = json.loads((work / "engine.json").read_text())
    versions = ", ".join(f"{name} {number}" for name, number in engine.items())
    metadata = {
        "trust_bounds.schema": "1",
        "trust_bounds.rollout": f"{arguments.rollout} ({versions})",
        "trust_bounds.train": f"hf-fp32 (transformers {version('transformers')})",
        "trust_bounds.units": "nats",
        "trust_bounds.kl_direction": KL_DIRECTION,
    }
    table = table_of(records, metadata)
    with atomic_path(out) as temporary:
        pq.write_table(table, temporary, compression="zstd", compression_level=19)
    provenance(arguments, metadata, engine, weights, out)
    shutil.rmtree(work)
    if not any(root.iterdir()):
        root.rmdir()


def provenance(
    arguments: argparse.Namespace,
    metadata: dict[str, str],
    engine: dict[str, str],
    weights: str,
    out: Path,
) -> None:
    """Write ``<out stem>.provenance.json``: versions, seeds, command, hashes, licence."""
    known = weights == WEIGHTS_SHA256
    vllm_python = "--vllm-python VENV/bin/python " if arguments.rollout == "vllm-bf16" else ""
    document = {
        "made": datetime.now(UTC).strftime("%Y-%m-%d"),
        "command": (
            f"python -m paper_repro.capture_real_log --rollout {arguments.rollout} {vllm_python}"
            f"--n {arguments.n} --max-tokens {arguments.max_tokens} --seed {arguments.seed} "
            f"--batch {arguments.batch} --out {out.name}"
        ),
        "rollout": metadata["trust_bounds.rollout"],
        "train": metadata["trust_bounds.train"],
        "kl_direction": KL_DIRECTION,
        "units": "nats",
        "sampling": {
            "temperature": 1.0,
            "top_p": 1.0,
            "top_k": "off",
            "ignore_eos": True,
            "note": "end-of-sequence is an ordinary token here, so every sequence is of full "
            "length and the sampled law is exactly softmax(logits); logit_half_range is the "
            "largest logit difference after removing the best common shift",
            "seeds": f"{arguments.seed} + sequence index",
        },
        "model": {
            "name": MODEL_NAME if known else "custom folder",
            "package": f"{PACKAGE}=={PACKAGE_VERSION}" if known else None,
            "sha256_gguf": SHA256 if known else None,
            "sha256_weights": weights,
            "licence": LICENCE if known else "unknown",
            "weights": "float32, dequantised from the package's Q4_1 GGUF" if known else None,
        },
        "versions": {
            "python": platform.python_version(),
            **engine,
            **{name: version(name) for name in ("torch", "transformers", "numpy", "pyarrow")},
        },
        "machine": f"{cpu_model()} ({platform.machine()}), {os.cpu_count()} cores",
        "sha256": sha256_of(out),
    }
    with atomic_path(out.with_suffix(".provenance.json")) as temporary:
        temporary.write_text(json.dumps(document, indent=2) + "\n")


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Command-line arguments, checked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="Parquet file to write")
    parser.add_argument("--rollout", choices=("vllm-bf16", "hf-bf16"), default="vllm-bf16")
    parser.add_argument("--vllm-python", type=Path, help="Python of the environment with vLLM")
    parser.add_argument("--model", type=Path, help="Hugging Face folder; SmolLM2-135M by default")
    parser.add_argument("--n", type=int, default=66, help="sequences")
    parser.add_argument("--max-tokens", type=int, default=128)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--batch", type=int, default=6, help="sequences sampled at once")
    parser.add_argument("--work", type=Path, help="folder for unfinished work")
    arguments = parser.parse_args(argv)
    if min(arguments.n, arguments.max_tokens, arguments.batch) < 1:
        parser.error("--n, --max-tokens and --batch must be at least 1")
    if arguments.rollout == "vllm-bf16" and arguments.vllm_python is None:
        parser.error("--vllm-python is missing; give the Python of the environment with vLLM")
    if not arguments.out.parent.is_dir():
        parser.error(f"folder {arguments.out.parent} does not exist; create it")
    return arguments


if __name__ == "__main__":
    try:
        capture(parse())
    except (InputError, RuntimeError) as error:
        raise SystemExit(f"error: {error}") from error
