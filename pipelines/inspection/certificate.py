"""The certificate of a machine: every value, what it was compared with, and the decision."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from forewarn.features.errors import InputError
from forewarn.features.inspection.check_results import RESULTS
from forewarn.features.inspection.check_table import CheckCategory, CheckTable
from forewarn.features.telemetry.telemetry_rows import is_host_name
from forewarn.features.time_units import HOUR, SECOND, Nanoseconds
from forewarn.models.inspection.judgement import judge
from forewarn.models.inspection.result_groups import hardware_of
from forewarn.pipelines.inspection.check_files import select_checks
from forewarn.pipelines.inspection.inspection_run import Inspection, inspect_machine
from forewarn.pipelines.inspection.judge_report import unit_row
from forewarn.pipelines.inspection.stored_results import (
    ACCEPTED_FILE,
    check_units,
    read_accepted,
    read_result_frame,
    require_same_hardware,
)
from forewarn.pipelines.rendering.templates import render_page
from forewarn.pipelines.runtime.timestamps import format_iso
from forewarn.pipelines.storage.files.atomic_files import replacing
from forewarn.pipelines.storage.files.file_names import arrow_path
from forewarn.response.inspection.acceptance import (
    BURN_IN,
    Acceptance,
    AcceptanceState,
    JudgedCheck,
    Occasion,
    decide_acceptance,
    required_checks,
)

__all__ = ["AcceptanceRequest", "accept_machine", "certificate_lines", "run_checks"]

_ORDER: Final = ("failed", "defective", "suspect", "degraded", "blind", "not_run", "ok")
_BURN_IN_SET: Final = "burn_in"
_HEADLINES: Final = {
    AcceptanceState.PASSED: "may work",
    AcceptanceState.FAILED: "must not work",
    AcceptanceState.INCOMPLETE: "is not yet accepted",
}


@dataclass(frozen=True, slots=True)
class AcceptanceRequest:
    """What is to be accepted, and from which results.

    Attributes
    ----------
    machine : str
    results : Path
        Results of the machine, and of others as the reference.
    out : Path
        Folder of certificates, one folder a machine.
    occasion : Occasion
    category : str or None
        Repaired category of the occasion `REPAIR`.
    since : int
        Nanoseconds since 1970 UTC; older results of the machine do not count.
    now : int
    neighbours : tuple of str
        Other machines, with which `run_checks` tests the network.
    via : str
        Command that runs another one on machine `{host}`.
    """

    machine: str
    results: Path
    out: Path
    occasion: Occasion
    category: CheckCategory | None
    since: Nanoseconds
    now: Nanoseconds
    neighbours: tuple[str, ...] = ()
    via: str = ""


def run_checks(request: AcceptanceRequest, checks: Mapping[str, CheckTable]) -> None:
    """Run what an acceptance needs on this machine: the sets `quick` and `accept`, and the burn-in.

    After a failure that makes the machine unusable, the longer sets do not run.

    Raises
    ------
    InputError
        If a set is empty, or the machine cannot be inspected now.
    """
    seconds = BURN_IN.get(request.occasion, 0) / SECOND
    for name in ("quick", "accept", *([_BURN_IN_SET] if seconds else [])):
        chosen = select_checks(dict(checks), name)
        burn_in = seconds if name == _BURN_IN_SET else 0.0
        rows = inspect_machine(
            Inspection(
                request.machine,
                name,
                chosen,
                request.results,
                burn_in=burn_in,
                neighbours=request.neighbours,
                via=request.via,
            )
        )
        bad = (row["check"] for row in rows if row["status"] == "failed")
        if any(chosen[check].level == "drain" for check in bad if check in chosen):
            return


def accept_machine(request: AcceptanceRequest, checks: Mapping[str, CheckTable]) -> dict[str, Any]:
    """Judge a machine, and write `OUT/MACHINE/certificate.json` and `certificate.html`.

    If it passed, its values become its own baseline, `OUT/MACHINE/accepted.parquet`.

    Returns
    -------
    dict
        The certificate.

    Raises
    ------
    InputError
        If the name is invalid, or there is no usable result of the machine.
    """
    machine = request.machine
    if not is_host_name(machine):
        raise InputError(f"--machine: found {machine[:60]!r}, expected the name of a machine.")
    results = read_result_frame(request.results)
    check_units(results, checks, request.results)
    is_old = results["timestamp"] < pd.Timestamp(request.since, tz="UTC")
    is_own = results["machine"] == machine
    own = results[is_own & ~is_old]
    if own.empty:
        raise InputError(
            f"{request.results}: holds no result of {machine} since {format_iso(request.since)}, "
            "expected those of `inspect run --set accept`."
        )
    accepted = read_accepted(request.out)
    require_same_hardware(own, accepted[accepted["machine"] != machine], request.results)
    judgement = judge(results[~is_own | ~is_old], checks, accepted)
    units = judgement.units[judgement.units["machine"] == machine]
    burn_in = _burn_in(own)
    decision = _decide(request, units, checks, burn_in)
    certificate = _certificate(request, own, units, checks, decision, burn_in)
    _write(request, certificate, own, decision.state)
    return certificate


def _burn_in(own: pd.DataFrame) -> Nanoseconds:
    """Return for how long one run of the burn-in tested; pauses after a kill do not count."""
    rows = own[own["set"] == _BURN_IN_SET]
    if rows.empty:
        return Nanoseconds(0)
    tested = rows.drop_duplicates(["run", "check", "timestamp"]).groupby("run")["seconds"].sum()
    return Nanoseconds(round(float(tested.max()) * SECOND))


def _decide(
    request: AcceptanceRequest,
    units: pd.DataFrame,
    checks: Mapping[str, CheckTable],
    burn_in: Nanoseconds,
) -> Acceptance:
    """Decide without the checks whose failure is only worth a note."""
    rows = units[["check", "slot", "state"]].astype(str).to_dict("records")
    decisive = [
        JudgedCheck(row["check"], row["slot"], row["state"])
        for row in rows
        if row["check"] not in checks or checks[row["check"]].level != "note"
    ]
    return decide_acceptance(
        decisive,
        required_checks(checks, request.category),
        burn_in=burn_in,
        needed=BURN_IN.get(request.occasion, Nanoseconds(0)),
    )


def _certificate(
    request: AcceptanceRequest,
    own: pd.DataFrame,
    units: pd.DataFrame,
    checks: Mapping[str, CheckTable],
    decision: Acceptance,
    burn_in: Nanoseconds,
) -> dict[str, Any]:
    rows = [unit_row(row, checks) for _, row in units.iterrows()]
    required = required_checks(checks, request.category)
    return {
        "machine": request.machine,
        "state": decision.state.value,
        "reasons": list(decision.reasons),
        "at": format_iso(request.now),
        "since": format_iso(request.since),
        "occasion": request.occasion.value,
        "category": request.category,
        "hardware": hardware_of(own["versions"].iloc[-1]),
        "versions": sorted(set(own["versions"])),
        "burn_in_hours": burn_in / HOUR,
        "required_burn_in_hours": BURN_IN.get(request.occasion, 0) / HOUR,
        "results": len(own),
        "checks": [row | {"required": row["check"] in required} for row in rows],
    }


def _write(
    request: AcceptanceRequest,
    certificate: Mapping[str, Any],
    own: pd.DataFrame,
    state: AcceptanceState,
) -> None:
    folder = request.out / request.machine
    page = render_page("inspection/certificate.html", _context(certificate))
    with replacing(folder / "certificate.json") as temporary:
        temporary.write_text(json.dumps(certificate, indent=1) + "\n", encoding="utf-8")
    with replacing(folder / "certificate.html") as temporary:
        temporary.write_text(page, encoding="utf-8")
    if state is AcceptanceState.PASSED:
        values = own[own["value"].notna()].assign(slot=own["slot"].replace("", None))
        table = pa.Table.from_pandas(values, schema=RESULTS, preserve_index=False)
        with replacing(folder / ACCEPTED_FILE) as temporary:
            pq.write_table(table, arrow_path(temporary), compression="zstd")


def _context(certificate: Mapping[str, Any]) -> dict[str, Any]:
    state = AcceptanceState(certificate["state"])
    worst = {name: rank for rank, name in enumerate(_ORDER)}
    rows = sorted(certificate["checks"], key=lambda row: (worst[row["state"]], row["check"]))
    groups: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault(row["category"] or "unknown", []).append(row)
    ran = sum(row["state"] not in ("not_run", "blind") for row in rows)
    return {
        "certificate": certificate,
        "headline": f"{certificate['machine']} {_HEADLINES[state]}",
        "tone": {"passed": "calm", "failed": "urgent", "incomplete": "soon"}[state],
        "groups": sorted(groups.items()),
        "tiles": [
            (ran, "results judged"),
            (len(rows) - ran, "did not run"),
            (certificate["results"], "values"),
            (f"{certificate['burn_in_hours']:.1f} h", "burn-in"),
        ],
    }


def certificate_lines(certificate: Mapping[str, Any]) -> list[str]:
    """Return the certificate in a few lines."""
    rows = certificate["checks"]
    ok = sum(row["state"] == "ok" for row in rows)
    return [
        f"{certificate['machine']}: {certificate['state']}, {ok} of {len(rows)} checks ok",
        *(f"  {reason}" for reason in certificate["reasons"]),
    ]
