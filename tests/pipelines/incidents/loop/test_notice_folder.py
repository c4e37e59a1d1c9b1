from __future__ import annotations

import json
import runpy
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.pipelines.incidents.loop.test_responder import CONFIG, Rig, make_rig

from forewarn.features.time_units import HOUR, Nanoseconds
from forewarn.pipelines.incidents.api.manual_actions import Operator
from forewarn.pipelines.incidents.ledger.recovery_log import read_events
from forewarn.pipelines.incidents.loop.notice_folder import write_notices
from forewarn.pipelines.incidents.schedulers.driver import JobExclusions
from forewarn.response.follow_up.job_notices import JobNotice
from forewarn.response.recovery.recovery_state import CheckpointSaved
from forewarn.response.state.job_block import JobBlock
from forewarn.response.state.machine import ServiceState
from forewarn.response.state.step import DrainMode

EXAMPLE = Path(__file__).parents[4] / "examples" / "save_on_notice.py"


@contextmanager
def started(folder: Path, mode: str) -> Iterator[Rig]:
    """Yield a site with notices; job 17 runs on m0 and m1, job 18 on m2."""
    rig = make_rig(folder, mode, CONFIG.replace("first_day", 'notices = "notices"\nfirst_day'))
    for name, job in (("m0", "17"), ("m1", "17"), ("m2", "18")):
        rig.driver.machines[name] = replace(rig.driver.machines[name], jobs=(job,))
    with rig.ledger:
        yield rig


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    with started(tmp_path, "act") as rig:
        yield rig


def notices(folder: Path) -> dict[str, Any]:
    files = (folder / "notices").glob("*.json")
    return {path.stem: json.loads(path.read_text()) for path in files}


def test_drain_gives_notice_until_it_is_undone(rig: Rig, tmp_path: Path) -> None:
    rig.once(1)
    assert notices(tmp_path) == {}
    rig.report("xid 79")
    rig.once(20)
    (notice,) = notices(tmp_path).values()
    assert (notice["job"], notice["save_now"]) == ("17", True)
    (machine,) = notice["machines"]
    assert (machine["machine"], machine["state"], machine["why"]) == ("m0", "draining", "xid 79")
    assert machine["leaves_at"] == "2025-03-02T00:06:00Z"
    assert rig.driver.notices == {"17": json.dumps(notice)}
    before = (tmp_path / "notices" / "17.json").stat().st_mtime_ns
    rig.once(1)
    assert (tmp_path / "notices" / "17.json").stat().st_mtime_ns == before
    (incident,) = rig.ledger.open_incidents()
    Operator(rig.ledger, "ann", rig.clock.at, "the board is fine").undo(incident.id)
    rig.once(1)
    assert notices(tmp_path) == {}
    assert rig.driver.notices == {}


def test_deadline_says_when_the_machine_leaves(rig: Rig, tmp_path: Path) -> None:
    Operator(rig.ledger, "ann", rig.clock.at, "fan").drain("m2", DrainMode.DEADLINE)
    rig.once(1)
    (machine,) = notices(tmp_path)["18"]["machines"]
    assert machine["leaves_at"] == "2025-03-02T00:05:00Z"


def test_proposed_drain_is_a_risk(tmp_path: Path) -> None:
    with started(tmp_path, "propose") as rig:
        rig.report("xid 79")
        rig.once(20)
        notice = notices(tmp_path)["17"]
        assert [row["state"] for row in notice["machines"]] == ["at_risk"]
        assert notice["save_now"]


def test_observed_drain_gives_no_notice(tmp_path: Path) -> None:
    with started(tmp_path, "observe") as rig:
        rig.report("xid 79")
        rig.once(20)
        assert notices(tmp_path) == {}


def test_avoided_machine_needs_no_checkpoint(rig: Rig, tmp_path: Path) -> None:
    rig.report("xid 79")
    rig.once(1)  # within the group wait, new jobs avoid the machine
    assert rig.state() is ServiceState.IN_SERVICE
    notice = notices(tmp_path)["17"]
    assert [row["state"] for row in notice["machines"]] == ["avoided"]
    assert not notice["save_now"]


def test_block_is_told_to_its_job_only(rig: Rig, tmp_path: Path) -> None:
    rig.driver.machines["m0"] = replace(rig.driver.machines["m0"], jobs=("17", "19"))
    rig.driver.waiting["17"] = JobExclusions(False, frozenset())
    at, until = rig.clock.at, Nanoseconds(rig.clock.at + HOUR)
    rig.ledger.add_block(JobBlock(0, "17", "m0", "wrong losses", "ann", at, until))
    rig.once(1)
    assert list(notices(tmp_path)) == ["17"]
    notice = notices(tmp_path)["17"]
    assert [row["state"] for row in notice["machines"]] == ["blocked"]
    assert notice["save_now"]


def test_notice_ends_with_its_job(rig: Rig, tmp_path: Path) -> None:
    rig.report("xid 79")
    rig.once(20)
    rig.driver.end_jobs("m0")
    rig.once(1)
    assert notices(tmp_path) == {}


def test_files_of_others_stay(tmp_path: Path) -> None:
    for name, text in (("a.json", "{}"), ("b.json", "no JSON"), ("c.txt", "{}")):
        (tmp_path / name).write_text(text)
    write_notices(tmp_path, [JobNotice("team/Job/x", ()), JobNotice("../../etc", ())])
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        *("a.json", "b.json", "c.txt", "team__Job__x.json"),
    ]
    write_notices(tmp_path, [])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.json", "b.json", "c.txt"]


def test_unwritable_folder_is_a_note(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()
    write_notices(tmp_path / "file", [JobNotice("17", ())])
    assert "notices to jobs were not written" in capsys.readouterr().err


@pytest.mark.parametrize("step", [1200, None])
def test_answer_goes_to_the_ledger_once(rig: Rig, tmp_path: Path, step: int | None) -> None:
    rig.report("xid 79")
    rig.once(20)
    notice = runpy.run_path(str(EXAMPLE))["Notice"](str(tmp_path / "notices"), "17")
    assert notice.asks_to_save()
    notice.answer(step)
    (tmp_path / "notices" / "99.answer").write_text('{"step": 1}')  # of no running job
    for _ in range(2):
        rig.once(1)
    events = read_events(rig.ledger, ["17", "99"])
    assert [event.step for event in events if isinstance(event, CheckpointSaved)] == [step]
    assert [path.name for path in (tmp_path / "notices").glob("*.answer")] == ["99.answer"]


@pytest.mark.parametrize("text", ["{", "[]", '{"step": -1}', '{"step": true}', "{}", "x" * 2000])
def test_unreadable_answer_is_a_note(
    rig: Rig, tmp_path: Path, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "notices").mkdir(exist_ok=True)
    path = tmp_path / "notices" / "17.answer"
    path.write_text(text)
    rig.once(1)
    assert "an answer of job 17 cannot be read" in capsys.readouterr().err
    assert read_events(rig.ledger, ["17"]) == []
    assert path.exists()


def test_example_saves_once_per_notice(tmp_path: Path) -> None:
    notice = runpy.run_path(str(EXAMPLE))["Notice"](str(tmp_path), "17")
    path = tmp_path / "17.json"
    answers = []
    for text in (None, '{"save_now": true}', '{"save_now": true}', "{", '{"save_now": false}'):
        if text is not None:
            path.write_text(text)
        answers.append(notice.asks_to_save())
    path.unlink()
    answers.append(notice.asks_to_save())
    path.write_text('{"save_now": true}')
    answers.append(notice.asks_to_save())
    assert answers == [False, True, False, False, False, False, True]
