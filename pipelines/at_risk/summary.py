"""The flagged GPUs of a list, as the terminal shows them."""

from __future__ import annotations

from forewarn.pipelines.at_risk.at_risk_list import AtRiskList
from forewarn.pipelines.at_risk.list_terms import ACTION_WORDS
from forewarn.pipelines.rendering.templates import chance_text
from forewarn.pipelines.runtime.terminal import plain

__all__ = ["list_summary"]


def list_summary(made: AtRiskList, *, most: int = 20) -> str:
    """Return the first flagged GPUs of a list and how many were left out."""
    flagged = made.table[made.table["flagged"]]
    lines = [f"{len(flagged)} of {len(made.table)} GPUs flagged"]
    for row in flagged.head(most).to_dict("records"):
        name = row.get("machine_id")
        machine = f" on {name}" if name and name == name else ""  # NaN: none is known
        probability = row["probability"]
        chance = "" if probability != probability else f" {chance_text(probability)}"
        action = f", worth {ACTION_WORDS[row['action']]}" if row.get("action") else ""
        reasons = row["reasons"] or "no single reason stands out"
        lines.append(f"  {row['gpu_serial']}{machine}{chance}{action}: {reasons}")
    if len(flagged) > most:
        lines.append(f"  and {len(flagged) - most} more")
    counts = made.unscored["reason"].value_counts().sort_index()
    if len(counts):
        left_out = ", ".join(f"{count} {reason}" for reason, count in counts.items())
        lines.append(f"not scored: {left_out}")
    return "\n".join(map(plain, lines))
