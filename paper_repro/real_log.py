"""The real log: SmolLM2-135M-Instruct sampled by vLLM in bf16, scored by transformers in fp32."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from figures.audit import audit_figure
from paper_repro.artefact import Artefact
from simulations.audit import audit

LOG: Final = Path(__file__).parent / "data" / "smollm2_vllm-bf16_vs_hf-fp32.parquet"


def run(out: Path) -> Artefact:
    """Write ``real_log.csv`` (bounds at the log's divergences) and ``real_log.png``."""
    result = audit(LOG, seed=0)
    csv, png = out / "real_log.csv", out / "real_log.png"
    result.to_pandas().to_csv(csv, index=False)
    size = f"{result.sequences} sequences × {result.longest} tokens"
    title = f"SmolLM2-135M, vLLM bf16 vs HF fp32: {size}"
    audit_figure(title=title, **result.figure_arguments()).savefig(png, dpi=200)
    return Artefact(
        "real_log",
        "Bounds at the divergences of a real log (estimates)",
        (csv, png),
        inputs=(LOG, LOG.with_suffix(".provenance.json")),
    )
