"""Ground truth for incidents: failures and tickets that confirm or refute them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from forewarn.features.errors import InputError
from forewarn.pipelines.incidents.sources.past_failures import read_failures
from forewarn.pipelines.runtime.progress import note
from forewarn.response.follow_up.outcome_assessment import GroundTruth
from forewarn.response.replay.fleet_history import failure_ground_truth
from forewarn.response.state.incident import Incident

__all__ = ["read_ground_truth"]


def read_ground_truth(table: Path, incidents: Iterable[Incident]) -> dict[str, list[GroundTruth]]:
    """Return the failures of a table by machine; empty, with a note, if it is unreadable.

    Parameters
    ----------
    table : Path
        Parquet or CSV with `gpu_serial`, `failed_at` and optionally `known_at`. It may not exist
        yet.
    incidents : iterable of Incident
        Provide the machine of a GPU.
    """
    if not table.exists():
        return {}
    machine_of = {i.gpu_serial: i.machine for i in incidents if i.gpu_serial is not None}
    try:
        failures = read_failures(table, machine_of)
    except (InputError, OSError) as error:
        note(f"source skipped: {error}")
        return {}
    return dict(failure_ground_truth(failures))
