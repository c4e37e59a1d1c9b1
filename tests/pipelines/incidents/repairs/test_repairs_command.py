"""`forewarn repairs`: cases out of a ledger, tickets, evidence, the page and the metrics."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.pipelines.incidents.repairs.conftest import START

from forewarn.features.telemetry.gpu_identity import PLACES
from forewarn.features.time_units import DAY, HOUR, Nanoseconds
from forewarn.pipelines.cli.main import main
from forewarn.pipelines.incidents.ledger.ledger import Ledger
from forewarn.pipelines.incidents.repairs.repair_events import read_repair_cases
from forewarn.response.repair.repair_case import RepairStage
from forewarn.response.state.action import ActionState

DRAINED, RELEASED = ActionState.DRAINED, ActionState.RELEASED
REPAIRED = (
    (DRAINED, "replace begun: by /opt/swap"),
    (DRAINED, "replace succeeded: new board"),
    (DRAINED, "check passed: ok"),
    (RELEASED, "the check passed"),
)


def report(capsys: pytest.CaptureFixture[str], site: Path, *options: str) -> dict[str, Any]:
    assert main(["repairs", "--config", str(site), "--json", *options]) == 0
    content: dict[str, Any] = json.loads(capsys.readouterr().out)
    return content


def test_case_is_read_from_actions(site_ledger: Ledger, repair: Callable[..., int]) -> None:
    number = repair(0, *REPAIRED)
    (case,) = read_repair_cases(site_ledger, Nanoseconds(START + 9 * DAY))
    hours = {stage.value: (at - START) / HOUR for stage, at in case.stages.items()}
    assert hours == {"detected": 0, "drained": 4, "swapped": 6, "accepted": 7, "returned": 8}
    assert (case.number, case.gpu_serials, case.slots) == (number, ("s1",), ("3",))
    assert case.missing == (RepairStage.EVIDENCE, RepairStage.TICKET)


def test_recorded_stages_and_offenders_are_reported(
    site: Path, repair: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    numbers = [repair(day, (RELEASED, "ok")) for day in (0, 5)] + [repair(10)]
    record = ["repairs", "--config", str(site), "--case", str(numbers[-1]), "--record"]
    assert main([*record, "ticket", "--detail", "OPS-1"]) == 0
    capsys.readouterr()
    content = report(capsys, site)
    (case,) = content["cases"]
    assert (case["stage"], case["ticket"], case["missing"]) == ("ticket", "OPS-1", ["evidence"])
    assert content["ended"] == 2
    assert len(report(capsys, site, "--all")["cases"]) == 3
    # Offences are of the last 28 days; those of this test are long ago.
    assert content["offenders"] == []
    metrics = (site.parent / "metrics" / "forewarn_repairs.prom").read_text()
    assert 'forewarn_repair_cases{stage="ticket"} 1.0' in metrics


@pytest.mark.parametrize(
    ("form", "path"),
    [
        ("webhook", ("case", "machine")),
        ("servicenow", ("cmdb_ci",)),
        ("jira", ("fields", "summary")),
    ],
)
def test_tickets_name_the_machine(
    site: Path,
    repair: Callable[..., int],
    capsys: pytest.CaptureFixture[str],
    form: str,
    path: tuple[str, ...],
) -> None:
    number = repair(0)
    assert main(["repairs", "--config", str(site), "--case", str(number), "--ticket", form]) == 0
    value: Any = json.loads(capsys.readouterr().out)
    for key in path:
        value = value[key]
    assert str(value).startswith("m1")


def test_bundle_has_the_evidence_and_is_recorded(
    site: Path, repair: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    number = repair(0)
    extra = site.parent / "dcgmi.json"
    extra.write_text("{}")
    out = site.parent / "case.tar.gz"
    arguments = ["repairs", "--config", str(site), "--case", str(number), "--bundle", str(out)]
    assert main([*arguments, "--add", str(extra)]) == 0
    with tarfile.open(out) as archive:
        assert archive.getnames() == ["case.json", "incidents.json", "files/dcgmi.json"]
        file = archive.extractfile("incidents.json")
        assert file is not None
        assert b"xid 79" in file.read()
    capsys.readouterr()
    assert report(capsys, site)["cases"][0]["stage"] == "evidence"
    assert main([*arguments, "--add", str(extra), "--add", str(extra)]) == 2
    assert "two files are named 'dcgmi.json'" in capsys.readouterr().err


def test_page_lists_the_cases(
    site: Path, repair: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    repair(0, *REPAIRED)
    repair(1, machine="m2")
    page = site.parent / "repairs.html"
    report(capsys, site, "--all", "--html", str(page))
    text = page.read_text()
    assert "1 machine in repair" in text
    assert "<bdi>m2</bdi>" in text


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--case", "5"], "`--case` needs one of"),
        (["--ticket", "jira"], "`--case` needs one of"),
        (["--case", "5", "--ticket", "jira"], "incident 5 has no repair case"),
        (["--case", "5", "--record", "vendor"], "there is no incident 5"),
    ],
)
def test_bad_options_are_refused(
    site: Path,
    repair: Callable[..., int],
    capsys: pytest.CaptureFixture[str],
    options: list[str],
    message: str,
) -> None:
    repair(0)
    assert main(["repairs", "--config", str(site), *options]) == 2
    assert message in capsys.readouterr().err


def stay(serial: str, machine: str, pci: str, first: float, last: float) -> dict[str, Any]:
    times = {"first": int(START + first * DAY), "last": int(START + last * DAY)}
    return {"gpu_serial": serial, "machine_id": machine, "pci": pci, "gpu_uuid": None, **times}


@pytest.mark.parametrize(
    ("places", "culprit"),
    [
        # s1 takes its incidents to m2, and its slot in m1 stays without any.
        (
            [
                stay("s1", "m1", "07", -1, 2),
                stay("s1", "m2", "0a", 8, 60),
                stay("s2", "m1", "07", 8, 60),
            ],
            "board",
        ),
        ([stay("s1", "m1", "07", -1, 2), stay("s2", "m1", "07", 2.5, 3)], "unknown"),
    ],
)
def test_board_is_followed_to_its_next_machine(
    site: Path,
    repair: Callable[..., int],
    capsys: pytest.CaptureFixture[str],
    places: list[dict[str, Any]],
    culprit: str,
) -> None:
    state = site.parent / "records" / "_state"
    state.mkdir(parents=True)
    pq.write_table(pa.Table.from_pylist(places, PLACES), state / "places.parquet")
    site.write_text(site.read_text().replace("[site]", '[site]\nrecords = "records"'))
    repair(0, (RELEASED, "ok"))
    for day in (10, 14, 18):
        repair(day, (RELEASED, "ok"), machine="m2")
    page = site.parent / "repairs.html"
    content = report(capsys, site, "--machine", "m1", "--all", "--html", str(page))
    (row,) = content["separations"]
    assert (row["gpu_serial"], row["machine"], row["slot"]) == ("s1", "m1", "07")
    assert row["culprit"] == culprit
    assert row["board_incidents"] == (3 if culprit == "board" else 0)
    assert "Board or chassis" in page.read_text()
    assert main(["repairs", "--config", str(site)]) == 0
    named = "board at fault: GPU s1 left m1 07" in capsys.readouterr().out
    assert named == (culprit == "board")


def test_slot_with_boards_in_turns_is_left_out(
    site: Path, repair: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    state = site.parent / "records" / "_state"
    state.mkdir(parents=True)
    places = [stay("s1", "m1", "07", -1, 9), stay("s2", "m1", "07", 3, 5)]
    pq.write_table(pa.Table.from_pylist(places, PLACES), state / "places.parquet")
    site.write_text(site.read_text().replace("[site]", '[site]\nrecords = "records"'))
    repair(0)
    assert report(capsys, site)["separations"] == []
