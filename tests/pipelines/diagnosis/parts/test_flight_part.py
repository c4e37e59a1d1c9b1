"""Flight recorder dumps through the command: origins of hangs, and slow ranks."""

from __future__ import annotations

import json
import pickle
import shutil
from pathlib import Path
from typing import Any

import pytest

from forewarn.features.time_units import SECOND
from forewarn.pipelines.cli.main import main

OPEN = {"retired": False}
LATER = "2026-11-22T07:00:00Z"  # hours after the shared dumps


def put_ranks(job: Path, n: int, width: int = 2) -> None:
    rows = [f"{r},m{r // 4},{r % 4},{r % width},0,{r // width}\n" for r in range(n)]
    (job / "ranks.csv").write_text("rank,machine,local_rank,tp,pp,dp\n" + "".join(rows))


def candidates(verdict: dict[str, Any]) -> list[int]:
    return [candidate["rank"] for candidate in verdict["also"]]


# --- dumps written by torch -----------------------------------------------------------------------


@pytest.fixture
def real_job(tmp_path: Path, shared_data: Path) -> Any:
    """Return `real_job(name, suffix)`: a job with the shared dumps in one format."""

    def copied(name: str, suffix: str = "json") -> Path:
        job = tmp_path / name
        (job / "flight").mkdir(parents=True)
        for file in (shared_data / "flight_recorder" / name).glob(f"*.{suffix}"):
            shutil.copyfile(file, job / "flight" / file.name)
        return job

    return copied


@pytest.mark.parametrize("suffix", ["json", "pickle"])
def test_torch_hang_originates_at_rank_2(real_job: Any, suffix: str, capsys: Any) -> None:
    job = real_job("hang", suffix)
    put_ranks(job, 4)
    assert main(["diagnose", "run", "--job", str(job), "--at", LATER, "--json"]) == 0
    verdict = json.loads(capsys.readouterr().out)
    assert (verdict["kind"], verdict["rank"], verdict["machine"]) == ("hang", 2, "m0")
    assert verdict["also"] == []
    assert verdict["since"] == "2026-11-21T21:19:36.321151044Z"
    assert verdict["probes"]["collective"]["state"] == "idle"
    assert "rank 1 waits for rank 3" in " ".join(e["says"] for e in verdict["evidence"])


def test_torch_deadlock_identifies_no_culprit(real_job: Any, capsys: Any) -> None:
    assert main(["diagnose", "run", "--job", str(real_job("deadlock")), "--at", LATER]) == 0
    text = capsys.readouterr().out
    assert "no culprit identified" in text
    assert "deadlock of the program" in text


def test_mismatch_of_two_has_two_candidates(real_job: Any, capsys: Any) -> None:
    job = real_job("wrong_collective", "pickle")
    assert main(["diagnose", "run", "--job", str(job), "--at", LATER, "--json"]) == 0
    verdict = json.loads(capsys.readouterr().out)
    assert (verdict["kind"], verdict["rank"]) == ("hang", None)
    assert candidates(verdict) == [2, 3]
    assert "barrier" in verdict["cause"]


def test_torch_slow_rank_is_not_tensor_partner(real_job: Any, capsys: Any) -> None:
    """Entry times alone blame rank 4 equally: it waits for rank 5 before each data all-reduce."""
    job = real_job("slow", "pickle")
    put_ranks(job, 8)
    assert main(["diagnose", "run", "--job", str(job), "--json"]) == 0
    verdict = json.loads(capsys.readouterr().out)
    assert (verdict["kind"], verdict["rank"], verdict["also"]) == ("slow", 5, [])
    details = verdict["evidence"][0]["details"]
    assert details["excess_seconds"] == pytest.approx(0.1, abs=0.005)
    assert "would gain 0.10" in verdict["cause"]


# --- synthetic jobs -------------------------------------------------------------------------------


def test_origin_over_two_hops(put_dump: Any, diagnose: Any) -> None:
    """0 waits for 1 in a, 1 for 2 in b, and 2 for 3 in c; 3 is in no operation."""
    put_dump(0, [("a", 1, 0.0), ("a", 2, 1.0, OPEN)])
    put_dump(1, [("a", 1, 0.0), ("b", 1, 0.1), ("b", 2, 1.0, OPEN)])
    put_dump(2, [("b", 1, 0.0), ("c", 1, 0.1), ("c", 2, 1.0, OPEN)])
    job = put_dump(3, [("c", 1, 0.0)])
    verdict = diagnose(job)
    assert (verdict["kind"], verdict["rank"], verdict["also"]) == ("hang", 3, [])


def test_hang_limits_of_collective_probe(put_dump: Any, diagnose: Any) -> None:
    put_dump(0, [("a", 1, 0.0), ("a", 2, 1.0, OPEN)])
    job = put_dump(1, [("a", 1, 0.0)])
    assert diagnose(job, 30.9)["probes"]["collective"]["state"] == "active"
    assert diagnose(job, 31.0)["probes"]["collective"]["state"] == "idle"
    assert diagnose(job, 300.0)["kind"] == "unknown"
    verdict = diagnose(job, 301.0)
    assert (verdict["kind"], verdict["rank"]) == ("hang", 1)


def test_dumps_alone_require_at_option(put_dump: Any, diagnose: Any) -> None:
    put_dump(0, [("a", 1, 0.0), ("a", 2, 1.0, OPEN)])
    job = put_dump(1, [("a", 1, 0.0)])
    verdict = diagnose(job, None)
    assert (verdict["kind"], verdict["rank"], verdict["culprits"]) == ("unknown", None, [])
    assert candidates(verdict) == [1]
    assert "--at" in verdict["cause"]
    assert diagnose(job, 300.0)["cause"] == "there is no log of a rank that shows progress"
    (job / "exits.csv").write_text("rank,exit_code,timestamp\n0,0,1970-01-01T00:00:00Z\n")
    assert diagnose(job, None)["kind"] == "unknown"  # exits do not say when the dumps were written


def test_finished_operations_do_not_prove_progress(put_dump: Any, diagnose: Any) -> None:
    job = put_dump(0, [("a", 1, 0.0)])
    assert diagnose(job, None)["kind"] == "unknown"


def test_mismatch_needs_no_time(put_dump: Any, diagnose: Any) -> None:
    for rank in range(3):
        put_dump(rank, [("a", 1, 0.0, OPEN)])
    verdict = diagnose(put_dump(3, [("a", 1, 0.0, OPEN | {"input_sizes": [[7]]})]), None)
    assert (verdict["kind"], verdict["rank"]) == ("hang", 3)


def test_old_operation_needs_no_time(put_dump: Any, diagnose: Any) -> None:
    """Rank 2 works on in another group, so that the dumps themselves show five minutes."""
    put_dump(0, [("a", 1, 0.0), ("a", 2, 1.0, OPEN)])
    put_dump(1, [("a", 1, 0.0)])
    job = put_dump(2, [("b", 1, 301.0)])
    verdict = diagnose(job, None)
    assert (verdict["kind"], verdict["rank"]) == ("hang", 1)


def test_mismatch_minority_is_culprit(put_dump: Any, diagnose: Any) -> None:
    for rank in range(3):
        put_dump(rank, [("a", 1, 0.0), ("a", 2, 1.0, OPEN)])
    other_size = OPEN | {"input_sizes": [[999]], "output_sizes": [[999]]}
    verdict = diagnose(put_dump(3, [("a", 1, 0.0), ("a", 2, 1.1, other_size)]))
    assert verdict["rank"] == 3
    assert "[[999]]" in verdict["cause"]


def test_all_to_all_sizes_may_differ(put_dump: Any, diagnose: Any) -> None:
    uneven = OPEN | {"profiling_name": "nccl:all_to_all"}
    put_dump(0, [("a", 1, 0.0), ("a", 2, 1.0, uneven)])
    put_dump(1, [("a", 1, 0.0), ("a", 2, 1.0, uneven | {"input_sizes": [[7]]})])
    verdict = diagnose(put_dump(2, [("a", 1, 0.0)]))
    assert verdict["rank"] == 2


def test_unstarted_device_blocks_others(put_dump: Any, diagnose: Any) -> None:
    """NCCL: all ranks have enqueued the operation, three run it, the fourth has not started it."""
    for rank in range(4):
        state = "scheduled" if rank == 1 else "started"
        job = put_dump(rank, [("a", 1, 0.0), ("a", 2, 1.0, OPEN | {"state": state})])
    assert diagnose(job)["rank"] == 1


def test_gloo_status_marks_operations_completed(put_dump: Any, diagnose: Any) -> None:
    """Neither `state` nor `retired` of the entry shows it, only `pg_status`, as a string."""
    status = {"1": {"last_completed_collective": "2", "last_enqueued_collective": "2"}}
    put_dump(0, [("a", 1, 0.0), ("a", 2, 1.0, OPEN)], pg_status=status)
    job = put_dump(1, [("a", 1, 0.0), ("a", 2, 1.0)])
    assert diagnose(job)["probes"]["collective"]["why"] == "all operations have finished"


def test_receiver_waits_for_absent_sender(put_dump: Any, diagnose: Any) -> None:
    """Ranks of a send are numbered within the group: number 1 of [4, 6] is rank 6."""
    config = {"pp": {"name": "pp", "desc": "pp", "ranks": "[4, 6]"}}
    receives = OPEN | {"profiling_name": "nccl:recv 0<-1", "is_p2p": True, "p2p_seq_id": 3}
    put_dump(4, [("pp", 0, 0.0, receives)], pg_config=config)
    job = put_dump(6, [("a", 1, 0.0)], pg_config=config)
    assert diagnose(job)["rank"] == 6
    sends = OPEN | {"profiling_name": "nccl:send 1->0", "is_p2p": True, "p2p_seq_id": 9}
    put_dump(6, [("pp", 0, 0.5, sends)], pg_config=config)
    assert diagnose(job)["rank"] is None


def test_rank_without_dump_is_candidate(put_dump: Any, diagnose: Any) -> None:
    for rank in (0, 1, 2):
        job = put_dump(rank, [("a", 1, 0.0), ("a", 2, 1.0, OPEN)])
    (job / "ranks.csv").write_text("rank,machine\n0,m0\n1,m1\n2,m2\n3,m3\n")
    verdict = diagnose(job)
    assert (verdict["rank"], verdict["machine"]) == (3, "m3")
    assert "left no dump" in verdict["cause"]


@pytest.mark.parametrize("content", ["", '{"version": "2.10", "entries": [{"pro'])
def test_truncated_dump_counts_as_missing(put_dump: Any, diagnose: Any, content: str) -> None:
    for rank in (0, 1, 2):
        job = put_dump(rank, [("a", 1, 0.0), ("a", 2, 1.0, OPEN)])
    (job / "flight" / "dump_3.json").write_text(content)
    verdict = diagnose(job)
    assert verdict["rank"] == 3
    assert any(text.startswith("flight: dump_3.json is") for text in verdict["blind"])


def test_coordinates_select_relevant_missing_dump(put_dump: Any, diagnose: Any) -> None:
    """8 ranks, tp 2 x dp 4; 5 and 6 left no dump, and the dp group of 1, 3, 7 waits for 5 only."""
    for rank in (1, 3, 7):
        job = put_dump(rank, [("dp1", 1, 0.0), ("dp1", 2, 1.0, OPEN)])
    for rank in (0, 2, 4):
        put_dump(rank, [("dp0", 1, 0.0), ("dp0", 2, 1.0)])
    put_ranks(job, 8)
    verdict = diagnose(job)
    assert [(c["rank"], c["weight"]) for c in verdict["also"]] == [(5, 0.5)]  # 5 may wait for 6
    put_dump(6, [("dp0", 1, 0.0), ("dp0", 2, 1.0)])
    verdict = diagnose(job)
    assert (verdict["rank"], verdict["machine"]) == (5, "m1")


def test_few_dumps_name_no_rank(put_dump: Any, diagnose: Any) -> None:
    """The ranks that left no dump may wait for each other."""
    config = {"a": {"name": "a", "desc": "", "ranks": "[0, 1]"}}
    config["b"] = {"name": "b", "desc": "", "ranks": "[0, 2, 3]"}
    job = put_dump(0, [("b", 1, 0.0), ("a", 2, 1.0, OPEN)], pg_config=config)
    verdict = diagnose(job)
    assert (verdict["kind"], verdict["culprits"]) == ("hang", [])
    assert candidates(verdict) == [1]
    assert "flight: no dump of ranks 1, 2, 3" in verdict["blind"]
    assert verdict["cause"].startswith("rank 1: ")


def test_ring_buffers_align_by_sequence_number(put_dump: Any, diagnose: Any) -> None:
    """Rank 1 is 50 operations ahead in `b`; its ring buffer no longer has the entry of rank 0."""
    ahead = [("a", seq, seq / 10) for seq in range(50, 60)]
    put_dump(1, ahead)
    put_dump(2, [("a", seq, seq / 10) for seq in range(1, 5)])
    job = put_dump(0, [("a", 4, 0.4), ("a", 5, 0.5, OPEN)])
    assert diagnose(job)["rank"] == 2


def test_multi_group_wait_is_weak_evidence(put_dump: Any, diagnose: Any) -> None:
    for rank in range(4):
        more = [("tp", 7, 1.5, OPEN)] if rank == 2 else []
        job = put_dump(rank, [("dp", 9, 1.0, OPEN), *more])
    verdict = diagnose(job, 600.0)
    assert (verdict["kind"], verdict["rank"]) == ("hang", None)
    assert {each["rank"]: each["weight"] for each in verdict["also"]} == {
        2: 0.5,
        **dict.fromkeys((0, 1, 3), 0.25),
    }


def test_later_entries_are_ignored(put_dump: Any, diagnose: Any) -> None:
    rows = [("a", seq, 100.0 * seq) for seq in range(1, 20)]
    ended = OPEN | {"state": "completed", "time_discovered_completed_ns": None}
    put_dump(0, [*rows, ("a", 20, 2000.0, ended)])
    job = put_dump(1, rows)
    late = {"time_discovered_completed_ns": (1_795_296_000 + 2500) * SECOND}
    put_dump(0, [*rows, ("a", 20, 2000.0, ended | late)])
    assert diagnose(job, 2400.0)["rank"] == 1
    assert diagnose(job, 2600.0)["kind"] == "none"


def put_steps(put_dump: Any, ahead: dict[int, float] | None = None, ends: bool = False) -> Path:
    """Write 8 ranks: tp pairs, then dp; rank 5 needs 0.3 s before each tp, the others 0.2 s.

    `ahead` is the clock skew of ranks in seconds; `ends` adds end times of operations.
    """
    for rank in range(8):
        rows, skew = [], (ahead or {}).get(rank, 0.0)
        for step in range(1, 12):
            begin, own = step * 0.5 + skew, 0.3 if rank == 5 else 0.2
            dp = begin + (0.3 if rank in (4, 5) else 0.2) + 0.1
            for group, entered, end in (
                (f"tp{rank // 2}", begin + own, dp - 0.1),
                (f"dp{rank % 2}", dp, begin + 0.4),
            ):
                ended = {
                    "time_discovered_completed_ns": 1_795_296_000 * SECOND + round(end * SECOND)
                }
                rows.append((group, step, entered, ended if ends else {}))
        job: Path = put_dump(rank, rows)
    put_ranks(job, 8)
    return job


def test_slow_rank_without_end_times(put_dump: Any, diagnose: Any) -> None:
    verdict = diagnose(put_steps(put_dump), None)
    assert (verdict["kind"], verdict["rank"], verdict["also"]) == ("slow", 5, [])
    assert verdict["evidence"][0]["details"]["excess_seconds"] == pytest.approx(0.1)


@pytest.mark.parametrize("seconds", [2.0, -2.0])
def test_skewed_clock_makes_no_rank_slow(put_dump: Any, diagnose: Any, seconds: float) -> None:
    """Without a correction, rank 2 leaves each collective before, or after, all others."""
    verdict = diagnose(put_steps(put_dump, {2: seconds, 3: seconds}), None)
    assert (verdict["kind"], verdict["rank"]) == ("slow", 5)
    assert "flight: clock skew, the lateness of ranks 2, 3 is unknown" in verdict["blind"]


def put_tight_steps(put_dump: Any, ahead: float, without: int | None = None) -> Path:
    """Write 12 steps of 1 s of 8 ranks; rank 5 is late by 0.1 s, m1 ahead, one dump missing."""
    for rank in set(range(8)) - {without}:
        rows, skew = [], ahead if rank >= 4 else 0.0
        for step in range(1, 13):
            reduced = step + (0.9 if rank in (4, 5) else 0.8)  # the last of its tensor group
            entered = step + (0.9 if rank == 5 else 0.8)
            rows.append((f"tp{rank // 2}", step, entered + skew))
            for bucket, moment in enumerate((reduced + 0.001, step + 0.902, step + 0.903)):
                rows.append((f"dp{rank % 2}", 3 * step + bucket, moment + skew))
        job: Path = put_dump(rank, rows)
    put_ranks(job, 8)
    return job


@pytest.mark.parametrize("ahead", [0.0, 1.5, -1.5])
def test_clocks_are_aligned_by_collectives(put_dump: Any, diagnose: Any, ahead: float) -> None:
    verdict = diagnose(put_tight_steps(put_dump, ahead), None)
    assert (verdict["kind"], verdict["rank"], verdict["also"]) == ("slow", 5, [])
    assert verdict["evidence"][0]["details"]["excess_seconds"] == pytest.approx(0.1, abs=0.003)
    notes = [text for text in verdict["blind"] if "clocks of machines are 1.5" in text]
    assert len(notes) == (1 if ahead else 0)


def test_clock_uncertainty_hides_small_lateness(put_dump: Any, diagnose: Any) -> None:
    """A computation separates all collectives between machines: clocks are known to 0.35 s."""
    skewed = dict.fromkeys(range(4, 8), 2.0)
    verdict = diagnose(put_steps(put_dump, skewed), None)
    assert (verdict["kind"], verdict["rank"]) == ("unknown", None)
    assert any("lateness below 0.7" in text for text in verdict["blind"])


@pytest.mark.parametrize("without", [4, 5])
def test_missing_dump_shares_weight_with_partner(
    put_dump: Any, diagnose: Any, without: int
) -> None:
    verdict = diagnose(put_tight_steps(put_dump, 0.0, without), None)
    assert (verdict["kind"], verdict["rank"], verdict["machine"]) == ("slow", None, "m1")
    assert candidates(verdict) == [4, 5]


def test_clocks_are_aligned_by_log_steps(put_dump: Any, diagnose: Any) -> None:
    job = put_steps(put_dump, dict.fromkeys(range(4, 8), 2.0))
    assert diagnose(job, None)["rank"] is None
    (job / "logs").mkdir()
    for rank in range(8):
        clock = 1_795_296_000 + (2.0 if rank >= 4 else 0.0)
        lines = [f"{clock + step * 0.5:.3f} step {step}\n" for step in range(1, 12)]
        (job / "logs" / f"{rank}.log").write_text("".join(lines))
    verdict = diagnose(job, None)
    assert (verdict["kind"], verdict["rank"]) == ("slow", 5)
    assert not [text for text in verdict["blind"] if text.startswith("flight")]


def test_missing_dump_of_other_stage_is_candidate(put_dump: Any, diagnose: Any) -> None:
    job = put_steps(put_dump)
    stages = "".join(f"{r},m{r // 4},,{r % 2},0,{r // 2}\n" for r in range(8))
    head = "rank,machine,local_rank,tp,pp,dp\n"
    (job / "ranks.csv").write_text(head + stages + "8,m2,0,1,1,2\n")
    verdict = diagnose(job, None)
    assert (verdict["kind"], verdict["rank"]) == ("slow", None)
    assert candidates(verdict) == [5, 8]


def test_end_times_make_clocks_irrelevant(put_dump: Any, diagnose: Any) -> None:
    skewed = {rank: float(rank) for rank in range(8)}
    verdict = diagnose(put_steps(put_dump, skewed, ends=True), None)
    assert (verdict["kind"], verdict["rank"], verdict["also"]) == ("slow", 5, [])
    assert not [text for text in verdict["blind"] if text.startswith("flight")]


def test_few_slow_steps_are_no_slow_rank(put_dump: Any, diagnose: Any) -> None:
    for rank in range(4):
        rows = [("a", n, n + (0.5 if rank == 2 and n % 4 == 0 else 0.0)) for n in range(40)]
        job = put_dump(rank, rows)
    assert diagnose(job, None)["kind"] == "unknown"


# --- invalid dumps --------------------------------------------------------------------------------


class Runs:
    """A pickle that runs code."""

    def __reduce__(self) -> tuple[object, ...]:
        return (print, ("it ran",))


def refused(job: Path, capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["diagnose", "run", "--job", str(job), "--json"]) == 2
    out, error = capsys.readouterr()
    assert out == ""
    assert error.count("\n") == 1
    return error


def test_pickle_with_function_is_refused(put_dump: Any, capsys: Any) -> None:
    job = put_dump(0, [("a", 1, 0.0)])
    dump = {"version": "2.10", "entries": [Runs()]}
    (job / "flight" / "trace_1").write_bytes(pickle.dumps(dump, protocol=2))
    error = refused(job, capsys)
    assert "trace_1: opcode GLOBAL at byte" in error
    assert "expected plain values only" in error


def test_unlisted_rank_is_refused(put_dump: Any, capsys: Any) -> None:
    job = put_dump(7, [("a", 1, 0.0)])
    (job / "ranks.csv").write_text("rank,machine\n0,m0\n1,m0\n")
    assert "mentions rank 7, expected one of the 2 ranks" in refused(job, capsys)


def test_unknown_version_is_blind(put_dump: Any, diagnose: Any) -> None:
    for rank in (0, 1):
        put_dump(rank, [("a", 1, 0.0), ("a", 2, 1.0, OPEN)])
    put_dump(2, [("a", 1, 0.0)])
    job = put_dump(3, [("a", 1, 0.0)], version="3.0")
    verdict = diagnose(job)
    assert "flight: dump_3.json has version '3.0', expected 2.x" in verdict["blind"]
    assert verdict["rank"] == 2


def test_later_of_two_dumps_counts(put_dump: Any, diagnose: Any) -> None:
    put_dump(0, [("a", 1, 0.0), ("a", 2, 1.0, OPEN)])
    put_dump(1, [("a", 1, 0.0), ("a", 2, 1.0)], name="later_1.json")
    job = put_dump(1, [("a", 1, 0.0)], name="early_1.json")
    verdict = diagnose(job)
    assert "flight: two dumps of rank 1, the later one counts" in verdict["blind"]
    assert verdict["rank"] != 1 or verdict["also"]


@pytest.mark.parametrize("name", ["_dump_{}", "x_rank_{}_20260304", "rank{}.pkl", "t_{}.json"])
def test_dumps_may_have_any_name(put_dump: Any, diagnose: Any, name: str) -> None:
    for rank in range(3):
        put_dump(rank, [("a", 1, 0.0), ("a", 2, 1.0, OPEN)], name=name.format(rank))
    verdict = diagnose(put_dump(3, [("a", 1, 0.0)], name=name.format(3)))
    assert (verdict["kind"], verdict["rank"]) == ("hang", 3)


def test_pickled_dump_may_be_named_json(put_dump: Any, diagnose: Any) -> None:
    put_dump(0, [("a", 1, 0.0), ("a", 2, 1.0, OPEN)])
    job = put_dump(1, [("a", 1, 0.0)])
    for file in (job / "flight").iterdir():
        file.write_bytes(pickle.dumps(json.loads(file.read_text()), protocol=2))
    assert diagnose(job)["rank"] == 1


def test_dumps_are_found_anywhere(put_dump: Any, diagnose: Any) -> None:
    put_dump(0, [("a", 1, 0.0), ("a", 2, 1.0, OPEN)])
    job = put_dump(1, [("a", 1, 0.0)])
    (job / "flight").rename(job / "from the ticket")
    assert diagnose(job)["rank"] == 1


def test_groups_tell_rank_without_name(put_dump: Any, diagnose: Any) -> None:
    """Each rank belongs to another pair of groups, which no other rank belongs to."""
    pairs = {0: ("a", "c"), 1: ("a", "d"), 2: ("b", "c"), 3: ("b", "d")}
    members = {"a": [0, 1], "b": [2, 3], "c": [0, 2], "d": [1, 3]}
    for rank, (first, second) in pairs.items():
        config = {
            group: {"name": group, "desc": "", "ranks": json.dumps(members[group])}
            for group in (first, second)
        }
        rows = [(first, 1, 0.0), *([(second, 1, 1.0, OPEN)] if rank != 3 else [])]
        job = put_dump(rank, rows, name=f"{'wxyz'[rank]}.json", pg_config=config)
    assert diagnose(job)["rank"] == 3
    put_dump(1, [("b", 1, 0.0)], name="dump_1.json", pg_config={"b": config["b"]})
    (note,) = [text for text in diagnose(job)["blind"] if text.startswith("flight")]
    assert "its name says rank 1, which does not belong to its groups" in note


def test_dump_may_say_its_rank(put_dump: Any, diagnose: Any) -> None:
    put_dump(0, [("a", 1, 0.0), ("a", 2, 1.0, OPEN)], name="dump_7.json", global_rank=0)
    verdict = diagnose(put_dump(1, [("a", 1, 0.0)], name="dump_8.json", global_rank=1))
    assert verdict["rank"] == 1


def test_ignored_files_are_listed(put_dump: Any, diagnose: Any) -> None:
    put_dump(0, [("a", 1, 0.0), ("a", 2, 1.0, OPEN)], name="first.json")
    job = put_dump(1, [("a", 1, 0.0)])
    (job / "flight" / "README").write_text("from node-1")
    notes = [text for text in diagnose(job)["blind"] if text.startswith("flight")]
    assert [note.partition(" ")[2].split()[0] for note in notes[:2]] == ["README", "first.json"]
    assert "neither its name nor its groups tell the rank" in notes[1]
    assert "no dump of rank 0" in notes[2]


def test_rank_lists_are_not_evaluated(put_dump: Any, diagnose: Any) -> None:
    config = {"a": {"name": "a", "desc": "", "ranks": "__import__('os').abort()"}}
    put_dump(0, [("a", 1, 0.0), ("a", 2, 1.0, OPEN)], pg_config=config)
    assert diagnose(put_dump(1, [("a", 1, 0.0)]))["rank"] == 1


@pytest.mark.parametrize("content", ["[" * 200_000, '{"version": "2.10", "x":' + "[" * 200_000])
def test_nesting_bomb_is_blind(put_dump: Any, diagnose: Any, content: str) -> None:
    put_dump(0, [("a", 1, 0.0)])
    job = put_dump(2, [("a", 1, 0.0)])
    (job / "flight" / "dump_1.json").write_text(content)
    assert any("dump_1.json is" in text for text in diagnose(job)["blind"])
