"""Sample with vLLM and keep every position's full row of log-probs. Run by vLLM's own Python.

A standalone script (standard library, numpy and vllm only), started by
:mod:`paper_repro.capture_real_log` as ``PYTHON vllm_worker.py REQUEST.json``. For every sequence it
writes ``<id>.npz`` with ``token_ids`` int32 ``[t]``, ``logprobs`` float32 ``[t]`` (what vLLM
reports for the sampled token) and ``rows`` float32 ``[t, V]`` (its full log-prob rows), atomically.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np


def dense_rows(flat: Any, vocabulary: int) -> np.ndarray:
    """``[t, V]`` float32 log-probs from vLLM's flat list; a token that is absent has ``-inf``."""
    tokens = np.asarray(flat.token_ids, dtype=np.int64)
    values = np.asarray(flat.logprobs, dtype=np.float32)
    lengths = np.asarray(flat.end_indices) - np.asarray(flat.start_indices)
    rows = np.full((len(lengths), vocabulary), -np.inf, dtype=np.float32)
    rows[np.repeat(np.arange(len(lengths)), lengths), tokens] = values
    return rows


def main(request_path: str) -> None:
    """Serve one request file."""
    import vllm
    from vllm import LLM, SamplingParams

    request = json.loads(Path(request_path).read_text())
    folder = Path(request["folder"])
    llm = LLM(
        model=request["model"],
        dtype=request["dtype"],
        enforce_eager=True,
        max_model_len=request["max_model_len"],
        max_logprobs=-1,
        max_num_seqs=request["batch"],
        seed=request["seed"],
    )
    vocabulary = int(llm.llm_engine.model_config.get_vocab_size())
    (folder / "engine.json").write_text(json.dumps({"vllm": vllm.__version__}))
    pending = [s for s in request["sequences"] if not (folder / f"{s['id']}.npz").exists()]
    for start in range(0, len(pending), request["batch"]):
        batch = pending[start : start + request["batch"]]
        outputs = llm.generate(
            [{"prompt_token_ids": s["prompt_token_ids"]} for s in batch],
            [
                SamplingParams(
                    temperature=1.0,
                    top_p=1.0,
                    top_k=0,
                    max_tokens=request["max_tokens"],
                    ignore_eos=True,
                    detokenize=False,
                    seed=s["seed"],
                    logprobs=-1,
                    flat_logprobs=True,
                )
                for s in batch
            ],
            use_tqdm=False,
        )
        for sequence, output in zip(batch, outputs, strict=True):
            completion = output.outputs[0]
            token_ids = np.asarray(completion.token_ids, dtype=np.int32)
            rows = dense_rows(completion.logprobs, vocabulary)
            temporary = folder / f".{sequence['id']}.tmp.npz"
            np.savez(
                temporary,
                token_ids=token_ids,
                logprobs=rows[np.arange(len(token_ids)), token_ids],
                rows=rows,
            )
            temporary.replace(folder / f"{sequence['id']}.npz")
            print(f"sampled {sequence['id']}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
