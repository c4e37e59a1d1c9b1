"""Logs and exits of job folders through the command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from forewarn.features.time_units import SECOND
from forewarn.pipelines.cli.main import main

T0 = 1_740_800_000  # 2025-03-01T03:33:20Z
GLOO = "[/src/gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 30000ms for recv operation"
LOST = "[/src/gloo/transport/tcp/pair.cc:547] Connection closed by peer [127.0.0.1]:4242"


def clock(seconds: float) -> str:
    whole = int(seconds)
    minutes, rest = divmod(whole - T0 + 33 * 60 + 20, 60)
    hours, minutes = divmod(minutes, 60)
    return f"2025-03-01 {3 + hours:02d}:{minutes:02d}:{rest:02d},{round(seconds % 1 * 1000):03d}"


class Job:
    """A job on two machines with two ranks each, in torchrun's tree."""

    def __init__(self, folder: Path, attempts: int = 1) -> None:
        self.folder, self.attempt = folder, attempts - 1
        folder.mkdir()
        rows = [f"{rank},m{rank // 2},{rank % 2},{100 + rank}" for rank in range(4)]
        (folder / "ranks.csv").write_text("rank,machine,local_rank,pid\n" + "\n".join(rows) + "\n")

    def tree(self, rank: int, attempt: int | None = None) -> Path:
        number = self.attempt if attempt is None else attempt
        path = self.folder / "logs" / f"m{rank // 2}" / f"attempt_{number}" / str(rank % 2)
        path.mkdir(parents=True, exist_ok=True)
        return path

    def steps(
        self, rank: int, count: int, *, begin: float = T0, ahead: float = 0, attempt: int = 0
    ) -> None:
        with (self.tree(rank, attempt) / "stdout.log").open("a") as stream:
            for step in range(count):
                stream.write(f"[{clock(begin + ahead + 10 * step)}] [INFO] step {step} loss 2.3\n")

    def write(self, rank: int, text: str, stream: str = "stderr.log") -> None:
        with (self.tree(rank) / stream).open("a") as log:
            log.write(text)

    def error(self, rank: int, message: str, seconds: float) -> None:
        extra = {"py_callstack": "Traceback ...", "timestamp": str(int(seconds))}
        values = {"message": {"message": message, "extraInfo": extra}}
        (self.tree(rank) / "error.json").write_text(json.dumps(values))

    def exits(self, *rows: tuple[int, int, float]) -> None:
        lines = [
            f"{rank},{code},{clock(seconds).replace(',', '.')}Z" for rank, code, seconds in rows
        ]
        (self.folder / "exits.csv").write_text(
            "rank,exit_code,timestamp\n" + "\n".join(lines) + "\n"
        )


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(tmp_path / "job")


@pytest.fixture
def diagnosed(capsys: pytest.CaptureFixture[str]) -> Any:
    def run(job: Job | Path, *options: str) -> dict[str, Any]:
        folder = job.folder if isinstance(job, Job) else job
        assert main(["diagnose", "run", "--job", str(folder), "--json", *options]) == 0
        line: dict[str, Any] = json.loads(capsys.readouterr().out)
        return line

    return run


def moment(seconds: float) -> str:
    return clock(seconds).replace(" ", "T").replace(",", ".") + "Z"


def test_raising_rank_is_culprit(job: Job, diagnosed: Any) -> None:
    for rank in range(4):
        job.steps(rank, 20)
    job.error(2, "ValueError: shard 17 is broken", T0 + 195)
    for rank in (0, 1, 3):
        job.error(rank, f"RuntimeError: {LOST}", T0 + 196)
    job.exits((1, 1, T0 + 197), (2, 1, T0 + 197), (0, 1, T0 + 198), (3, -15, T0 + 198))
    line = diagnosed(job)
    assert (line["kind"], line["rank"], line["machine"]) == ("crash", 2, "m1")
    assert "ValueError: shard 17 is broken" in line["cause"]


def test_killed_rank_is_culprit(job: Job, diagnosed: Any) -> None:
    for rank in range(4):
        job.steps(rank, 20)
    for rank in (0, 1, 2):
        job.error(rank, f"RuntimeError: {LOST}", T0 + 195)
    job.exits((3, -9, T0 + 195.5), (0, 1, T0 + 196), (1, 1, T0 + 196), (2, 1, T0 + 196))
    line = diagnosed(job)
    assert (line["kind"], line["rank"]) == ("crash", 3)


def test_rank_without_error_is_origin_of_hang(job: Job, diagnosed: Any) -> None:
    """As measured: rank 1 timed out first, rank 2 left -15 and no error file."""
    for rank in range(4):
        job.steps(rank, 20)
    job.error(1, f"RuntimeError: {GLOO} to complete", T0 + 225)
    job.error(0, f"RuntimeError: {LOST}", T0 + 226)
    job.error(3, f"RuntimeError: {LOST}", T0 + 226)
    job.exits((1, 1, T0 + 227), (0, 1, T0 + 227), (3, 1, T0 + 227), (2, -15, T0 + 228))
    line = diagnosed(job)
    assert (line["kind"], line["rank"]) == ("crash", 2)


def test_launcher_kill_is_not_root_cause(job: Job, diagnosed: Any) -> None:
    """A stopped rank ignores SIGTERM; torchrun's own log then reports a SIGKILL."""
    for rank in range(4):
        job.steps(rank, 20)
    for rank in (0, 1, 3):
        job.error(rank, f"RuntimeError: {GLOO} to complete", T0 + 225)
    job.exits(*((rank, 1, T0 + 226) for rank in (0, 1, 3)), (2, -9, T0 + 256))
    report = "  exitcode  : -9 (pid: 102)  (SIGKILL)\n  Signal 9 (SIGKILL) received by PID 102\n"
    (job.folder / "logs" / "m1" / "torchrun.log").write_text(
        f"Sending process 103 closing signal SIGTERM\nTraceback (most recent call last):\n{report}"
    )
    line = diagnosed(job)
    assert (line["kind"], line["rank"]) == ("crash", 2)
    assert line["cause"].startswith("3 ranks timed out or lost a peer")
    assert [item for item in line["evidence"] if item["part"] == "kernel"] == []


def test_oom_killed_process_is_culprit(job: Job, diagnosed: Any) -> None:
    for rank in range(4):
        job.steps(rank, 20)
    for rank in (0, 1, 2):
        job.error(rank, f"RuntimeError: {LOST}", T0 + 195)
    kernel = (
        "kern  :err   : 2025-03-01T03:36:34,500000+00:00 Out of memory: Killed process 103 (python)"
    )
    (job.folder / "logs" / "m1" / "dmesg.log").write_text(kernel + "\n")
    job.exits((3, -9, T0 + 195.5), (0, 1, T0 + 196))
    line = diagnosed(job)
    assert (line["rank"], line["machine"]) == (3, "m1")
    assert line["cause"].startswith("the machine or container ran out of memory")


def events(folder: Path, *rows: tuple[str, str | None, str, int | None, float]) -> Path:
    """Write events given as machine, serial, kind, code and time."""
    times = pa.array([round(row[4] * SECOND) for row in rows], pa.timestamp("ns", "UTC"))
    columns = list(zip(*rows, strict=True))
    table = pa.table(
        {
            "timestamp": times,
            "known_at": times,
            "machine_id": columns[0],
            "gpu_serial": pa.array(columns[1], pa.string()),
            "kind": columns[2],
            "code": pa.array(columns[3], pa.int64()),
            "raw": pa.nulls(len(rows), pa.string()),
        }
    )
    day = folder / "_events" / "date=2025-03-01"
    day.mkdir(parents=True)
    pq.write_table(table, day / "03.parquet")
    return folder


def test_recorded_xid_explains_exception(job: Job, diagnosed: Any, tmp_path: Path) -> None:
    for rank in range(4):
        job.steps(rank, 20)
    job.error(3, "RuntimeError: CUDA error: unknown error", T0 + 195)
    job.error(0, f"RuntimeError: {LOST}", T0 + 196)
    records = events(
        tmp_path / "records",
        ("m1", None, "xid", 79, T0 + 194.0),
        ("m0", None, "xid", 13, T0 + 194.0),
        ("m9", None, "xid", 79, T0 + 193.0),
        ("m0", None, "xid", 79, T0 + 9000.0),
    )
    line = diagnosed(job, "--events", str(records))
    assert (line["rank"], line["machine"]) == (3, "m1")
    assert line["cause"].startswith("the GPU no longer responds on PCIe")
    before = diagnosed(job, "--events", str(records), "--at", moment(T0 + 193))
    assert before["kind"] == "none"


def test_records_without_events_are_refused(
    job: Job, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job.steps(0, 5)
    command = ["diagnose", "run", "--job", str(job.folder), "--events", str(tmp_path)]
    assert main(command) == 2
    assert "holds no `_events`" in capsys.readouterr().err


def test_site_pattern_defines_cause(job: Job, diagnosed: Any, tmp_path: Path) -> None:
    for rank in range(4):
        job.steps(rank, 5)
    job.error(2, "BadThing at lane 7", T0 + 45)
    site = tmp_path / "site.toml"
    site.write_text(
        "[patterns.lanes]\npattern = 'BadThing at lane'\nrole = 'root'\nscope = 'fabric'\n"
        "level = 'error'\nsays = 'a lane is broken'\nnext = 'call the lane desk'\n"
    )
    line = diagnosed(job, "--patterns", str(site))
    assert line["cause"] == "a lane is broken: BadThing at lane 7; call the lane desk"


def test_clocks_are_aligned_by_steps(job: Job, diagnosed: Any) -> None:
    """The clock of m0 is an hour ahead: without a correction rank 2 would be later."""
    for rank in range(4):
        job.steps(rank, 20, ahead=3600 if rank < 2 else 0)
    job.error(0, "ValueError: batch is empty", T0 + 3600 + 191)
    job.error(2, "KeyError: 'mask'", T0 + 196)
    line = diagnosed(job)
    assert (line["rank"], line["cause"].split(";")[0]) == (
        0,
        "uncaught exception in the program: ValueError: batch is empty",
    )


def test_restart_clears_earlier_errors(tmp_path: Path, diagnosed: Any) -> None:
    job = Job(tmp_path / "job", attempts=2)
    for rank in range(4):
        job.steps(rank, 5, attempt=0)
        job.steps(rank, 20, begin=T0 + 100, attempt=1)
    job.attempt = 0
    job.error(2, "ValueError: shard 17 is broken", T0 + 50)
    assert diagnosed(job)["kind"] == "none"
    line = diagnosed(job, "--at", moment(T0 + 60))
    assert (line["kind"], line["rank"]) == ("crash", 2)


def test_later_errors_are_ignored(job: Job, diagnosed: Any) -> None:
    for rank in range(4):
        job.steps(rank, 20)
    job.error(2, "ValueError: shard 17 is broken", T0 + 195)
    assert diagnosed(job, "--at", moment(T0 + 190))["kind"] == "none"


def test_log_probe_idle_after_eight_minutes(job: Job, diagnosed: Any) -> None:
    for rank in range(4):
        job.steps(rank, 20 + rank)
    probe = diagnosed(job, "--at", moment(T0 + 220 + 479))["probes"]["log"]
    assert probe["state"] == "active"
    probe = diagnosed(job, "--at", moment(T0 + 220 + 481))["probes"]["log"]
    assert probe["state"] == "idle"
    assert "the last one was rank 3" in probe["why"]


def test_logs_without_timestamps_are_blind(job: Job, diagnosed: Any) -> None:
    job.write(0, "step 1\nstep 2\n")
    job.write(1, "Traceback (most recent call last):\nValueError: shard 3 is broken\n")
    (job.tree(2) / "stdout.log").write_bytes(b"\x7fELF\x00\x01" * 100)
    (job.tree(3) / "error.json").write_text('{"message": {"mess')
    line = diagnosed(job, "--at", moment(T0))
    assert line["probes"]["log"]["state"] == "blind"
    assert (line["kind"], line["rank"]) == ("crash", 1)
    blind = " ".join(line["blind"])
    for text in ("no timestamps", "binary file", "truncated"):
        assert text in blind


def test_top_level_logs_with_missing_years(tmp_path: Path, diagnosed: Any) -> None:
    folder = tmp_path / "job"
    (folder / "logs").mkdir(parents=True)
    watchdog = (
        "[rank{0}]:[E301 04:00:0{0}.5 ProcessGroupNCCL.cpp:632] [Rank {0}] Watchdog caught "
        "collective operation timeout: WorkNCCL(SeqNum=7, OpType=ALLREDUCE, Timeout(ms)=600000)\n"
    )
    for rank in range(3):
        (folder / "logs" / f"{rank}.log").write_text(watchdog.format(rank))
    (folder / "logs" / "3.log").write_text("[2025-03-01 03:49:00,000] [INFO] step 6\n")
    line = diagnosed(folder)
    assert (line["kind"], line["rank"]) == ("crash", 3)
    assert line["at"] == "2025-03-01T04:00:02.500000Z"


def test_dlrover_master_log_identifies_rank(tmp_path: Path, diagnosed: Any) -> None:
    folder = tmp_path / "job"
    (folder / "logs").mkdir(parents=True)
    extra = {"py_callstack": "", "timestamp": str(T0 + 5)}
    failed = {
        "1": {
            "local_rank": 0,
            "exitcode": 1,
            "message": {"message": "ValueError: x", "extraInfo": extra},
        }
    }
    lost = {
        "0": {"local_rank": 0, "exitcode": -6, "message": {"message": LOST, "extraInfo": extra}}
    }
    lines = [
        f"[{clock(T0 + 6)}] [INFO] worker-{n} restart 0 fails: {json.dumps(workers)}"
        for n, workers in enumerate((lost, failed))
    ]
    (folder / "logs" / "master.log").write_text("\n".join(lines) + "\n")
    line = diagnosed(folder)
    assert (line["kind"], line["rank"]) == ("crash", 1)


def test_unknown_error_is_reported(job: Job, diagnosed: Any) -> None:
    for rank in range(4):
        job.steps(rank, 5)
    job.write(2, "frobnicate failed on lane 7\nfrobnicate failed on lane 8\n")
    job.error(2, "BadThing at lane 7", T0 + 45)
    line = diagnosed(job)
    assert line["rank"] == 2
    assert "not in the knowledge base" in line["cause"]
    new = [item["says"] for item in line["evidence"] if item["says"].startswith("new: ")]
    assert new == ["new: 2 lines in 1 logs like: frobnicate failed on lane <n>"]


def test_exits_alone_identify_killed_rank(job: Job, diagnosed: Any) -> None:
    job.exits((0, 1, T0 + 2), (1, 1, T0 + 2), (2, -9, T0 + 1), (3, -15, T0 + 3))
    line = diagnosed(job)
    assert (line["kind"], line["rank"]) == ("crash", 2)


def test_successful_job_has_no_verdict(job: Job, diagnosed: Any) -> None:
    for rank in range(4):
        job.steps(rank, 20)
        job.write(rank, "WARNING: connection reset by peer, trying again\n", "stdout.log")
        job.steps(rank, 20, begin=T0 + 300)
    job.exits(*((rank, 0, T0 + 600) for rank in range(4)))
    assert diagnosed(job)["kind"] == "none"
    later = diagnosed(job, "--at", moment(T0 + 3000))
    assert later["kind"] == "none"
    assert later["probes"]["log"]["why"] == "all ranks have ended"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rank,code\n0,1\n", "column `exit_code` is missing"),
        ("rank,exit_code\nx,1\n", "`rank` is 'x', expected an integer"),
        ("rank,exit_code\n0,9999\n", "`exit_code` is '9999', expected an integer"),
        (
            "rank,exit_code,timestamp\n0,1,yesterday\n",
            "`timestamp` is 'yesterday', expected a time",
        ),
        ("rank,exit_code\n9,1\n", "mentions rank 9"),
    ],
)
def test_invalid_exits_are_refused(
    job: Job, capsys: pytest.CaptureFixture[str], text: str, message: str
) -> None:
    (job.folder / "exits.csv").write_text(text)
    at = ["--at", moment(T0)]
    assert main(["diagnose", "run", "--job", str(job.folder), *at]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


@pytest.mark.parametrize("hours", [1, 5.5, 8, 13])
def test_zone_follows_from_exits(job: Job, diagnosed: Any, hours: float) -> None:
    """Lines that end hours after the exits of all ranks are in local time."""
    for rank in range(4):
        job.steps(rank, 20, begin=T0 + hours * 3600)
    job.write(2, "ValueError: batch is empty\n", "stderr.log")
    job.exits(*((rank, 1 if rank == 2 else -15, T0 + 200) for rank in range(4)))
    line = diagnosed(job)
    assert (line["kind"], line["rank"]) == ("crash", 2)
    assert line["since"] is None or line["since"] < moment(T0 + 600)
    assert all("times without a zone are read as UTC+" in file["why"] for file in line["files"])


def test_stated_zone_wins(job: Job, diagnosed: Any) -> None:
    job.steps(0, 20, begin=T0 + 3 * 3600)
    job.write(0, "ValueError: batch is empty\n", "stderr.log")
    at = diagnosed(job, "--timezone", "Etc/GMT-3")["at"]
    assert moment(T0) <= at <= moment(T0 + 600)


def test_unknown_zone_is_refused(job: Job, capsys: Any) -> None:
    job.steps(0, 2)
    with pytest.raises(SystemExit) as stop:
        main(["diagnose", "run", "--job", str(job.folder), "--timezone", "Mars/Base"])
    assert stop.value.code == 2
    assert "'Mars/Base' is not a time zone" in capsys.readouterr().err


@pytest.mark.parametrize(
    "end",
    [
        "m4: the transfer to 7 failed\n",
        "step 41 | loss 2.1 [2:11] step 42 | lGrid access fault on unit 3, reason 9\n",
        "[x/pair.cc:7] Timed out after 400ms\n",
    ],
)
def test_error_at_the_end_is_unknown(tmp_path: Path, diagnosed: Any, end: str) -> None:
    logs = tmp_path / "job" / "logs"
    logs.mkdir(parents=True)
    steps = "".join(f"step {number} | loss 2.{number}\n" for number in range(12))
    (logs / "a.log").write_text(steps + end)
    line = diagnosed(tmp_path / "job")
    assert (line["kind"], line["culprits"]) == ("unknown", [])
    assert end.strip()[-20:] in line["cause"]
    (logs / "a.log").write_text(steps + end + steps.replace("step ", "step 1"))
    assert diagnosed(tmp_path / "job")["kind"] == "none"
