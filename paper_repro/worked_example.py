"""The worked numbers of Trust Region Masking: T = 4096, delta = 1e-4, K_seq = 0.01."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pandas as pd

from bounds.evaluate import Evaluation, evaluate
from bounds.registry import OURS, TRM
from paper_repro.artefact import Artefact, Check

INPUTS: Final[dict[str, Any]] = {"T": 4096, "kl_max": 1e-4, "kl_seq": 0.01}
#: (bound, value as printed, half a unit of the last printed digit, where)
PRINTED: Final = (
    ("classical-kl-small", 1677.3, 0.05, f"{TRM}, worked example"),
    ("pinsker-marginal-kl-small", 34.95, 0.005, f"{TRM}, worked example"),
    ("mixed-kl-small", 8.19, 0.005, f"{TRM}, worked example"),
    ("martingale-chi2", 0.335, 0.0005, f"{OURS}: theory notes, x = 2 delta"),
)


def worked_table() -> tuple[pd.DataFrame, Evaluation]:
    """Every bound at the paper's inputs, with the paper's value where it prints one."""
    result = evaluate(**INPUTS)
    printed = {name: value for name, value, _, _ in PRINTED}
    rows = [
        {
            "bound": entry.name,
            "title": entry.bound.title,
            "owner": entry.bound.owner,
            "paper_value": printed.get(entry.name),
            "ours": None if entry.value is None else float(entry.value),
            "status": entry.status,
            "label": "certified bound" if entry.certified else entry.status,
            "vacuous": None if entry.vacuous is None else bool(entry.vacuous),
            "source": entry.bound.source,
        }
        for entry in result
    ]
    return pd.DataFrame(rows), result


def run(out: Path) -> Artefact:
    """Write ``worked_example.csv`` and ``.md`` into ``out``."""
    table, result = worked_table()
    csv, markdown = out / "worked_example.csv", out / "worked_example.md"
    table.to_csv(csv, index=False)
    lines = [
        "# Worked example: T = 4096, delta = 1e-4, K_seq = 0.01",
        "",
        "Bounds on |Error|, rewards in [0, 1]; KL is KL(roll || theta) in nats. An approximation",
        "rests on x = 2 delta and is not a guarantee.",
        "",
        "| bound | paper | ours | label |",
        "|---|---|---|---|",
    ]
    row: Any
    for row in table.itertuples():
        if pd.isna(row.ours):
            continue
        paper = "" if pd.isna(row.paper_value) else f"{row.paper_value:g}"
        lines.append(f"| {row.bound} | {paper} | {row.ours:.6g} | {row.label} |")
    markdown.write_text("\n".join(lines) + "\n")
    checks = tuple(
        Check(
            name,
            value,
            float(result[name].value),
            tolerance,
            source,
            "certified bound" if result[name].certified else "approximation",
        )
        for name, value, tolerance, source in PRINTED
    )
    return Artefact("worked_example", "Worked numbers at T = 4096", (csv, markdown), checks)
