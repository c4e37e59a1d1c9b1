"""The result of a search for hyperparameters: a table, and a fragment of a configuration."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from forewarn.pipelines.config.settings import Settings
from forewarn.pipelines.runtime.timestamps import format_iso
from forewarn.pipelines.training.tuning import HISTORY, Candidate, Tuning

__all__ = ["toml_fragment", "tuning_dict", "tuning_text"]


def tuning_text(tuning: Tuning) -> str:
    """Return the search as text: what was chosen, and what it gains on later windows."""
    width = max(map(len, tuning.default))
    rows = [
        f"{name:<{width}}  {_shown(tuning.default[name]):>12}  {_shown(value):>12}"
        for name, value in tuning.chosen.items()
    ]
    head = f"{'':<{width}}  {'configured':>12}  {'best trial':>12}"
    best, before = max(precision for precision, _ in tuning.trials), tuning.trials[0][0]
    return "\n".join(
        [
            head,
            *rows,
            "",
            f"choosing: {_span(tuning.choosing)}: average precision {best:.3f}, configured "
            f"{before:.3f}, {len(tuning.trials)} trials",
            f"judging:  {_span(tuning.judging)}: {_judgement(tuning)}",
            _advice(tuning),
        ]
    )


def _span(starts: tuple[int, ...]) -> str:
    first, last = (format_iso(start)[:10] for start in (starts[0], starts[-1]))
    return f"{len(starts)} windows from {first} to {last}"


def _judgement(tuning: Tuning) -> str:
    low, high = tuning.interval or (float("nan"), float("nan"))
    return (
        f"average precision {tuning.chosen_precision:.3f}, configured "
        f"{tuning.default_precision:.3f}, difference {tuning.difference:+.3f} "
        f"[{low:+.3f}, {high:+.3f}]"
    )


def _advice(tuning: Tuning) -> str:
    if tuning.pays:
        return "The search pays: use the file."
    return "The search does not pay: the interval includes 0 or less. Keep the configuration."


def _shown(value: object) -> str:
    return str(value) if value != "" else "none"


def toml_fragment(tuning: Tuning, settings: Settings) -> str:
    """Return the chosen values as tables of a configuration.

    `[features]` is written with all columns, since a kind that the table leaves out is empty.
    """
    lines = [f"# forewarn tune: {_span(tuning.judging)}", f"# {_judgement(tuning)}"]
    lines += [f"# {_advice(tuning)}"]
    tables: dict[str, dict[str, Any]] = {}
    for name, value in _by_key(tuning.chosen):
        model, _, key = name.partition(".")
        tables.setdefault(f"models.{model}", {})[key] = value
    if tuning.chosen.get(HISTORY) != tuning.default.get(HISTORY):
        spans = str(tuning.chosen[HISTORY]).split(",")
        columns = settings.features.model_dump(mode="json", exclude={"history"})
        explicit = settings.features.model_fields_set
        spelled = {key: item for key, item in columns.items() if item or key in explicit}
        tables["features"] = spelled | {"history": [int(span) for span in spans if span]}
    for table, values in tables.items():
        lines += ["", f"[{table}]", *(f"{key} = {json.dumps(v)}" for key, v in values.items())]
    return "\n".join(lines) + "\n"


def _by_key(candidate: Candidate) -> Iterator[tuple[str, Any]]:
    return ((name, value) for name, value in candidate.items() if name != HISTORY)


def tuning_dict(tuning: Tuning) -> dict[str, Any]:
    """Return the search as a JSON value."""
    return {
        "configured": dict(tuning.default),
        "chosen": dict(tuning.chosen),
        "trials": [
            {"average_precision": precision, **candidate} for precision, candidate in tuning.trials
        ],
        "choosing": [format_iso(start) for start in tuning.choosing],
        "judging": [format_iso(start) for start in tuning.judging],
        "average_precision": tuning.chosen_precision,
        "configured_average_precision": tuning.default_precision,
        "difference": tuning.difference,
        "interval": tuning.interval,
        "pays": tuning.pays,
    }
