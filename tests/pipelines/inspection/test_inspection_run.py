"""An inspection: limits of checks, one result each, no process left, and going on after a kill."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.conftest import skip_or_fail

from forewarn.features.inspection.check_table import CheckTable
from forewarn.features.time_units import DAY, SECOND
from forewarn.pipelines.cli.main import main
from forewarn.pipelines.inspection import check_runner, inspection_run
from forewarn.pipelines.inspection.check_files import load_checks, select_checks
from forewarn.pipelines.inspection.check_runner import cpu_share
from forewarn.pipelines.inspection.inspection_run import (
    Inspection,
    InspectionError,
    inspect_machine,
)
from forewarn.pipelines.inspection.result_files import read_results
from forewarn.pipelines.runtime.bounded_program import run_program

T0 = 1_740_787_200 * SECOND


@pytest.fixture(autouse=True)
def idle_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests run next to each other, so the machine of these is idle by decree."""
    monkeypatch.setattr("forewarn.pipelines.inspection.check_runner.cpu_share", lambda _: 0.0)


def check(script: str, **keys: Any) -> CheckTable:
    table = {"command": ["/bin/sh", "-c", script], "when": ["s"], "timeout": "20s", **keys}
    return CheckTable.model_validate(table)


def inspection(out: Path, checks: dict[str, CheckTable], **options: Any) -> Inspection:
    return Inspection(f"node-{os.getpid()}", "s", checks, out, **options)


def statuses(rows: list[dict[str, Any]]) -> dict[str, str]:
    return {row["check"]: row["status"] for row in rows}


def marked(text: str) -> list[int]:
    """Return the living processes with a text in their command line."""
    pids = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if text.encode() in path.read_bytes() and int(path.parent.name) != os.getpid():
                pids.append(int(path.parent.name))
        except OSError:
            continue
    return pids


def wait_until_gone(text: str) -> None:
    for _ in range(1000):
        if not marked(text):
            return
        time.sleep(0.01)
    pytest.fail(f"processes with {text} are left: {marked(text)}")


def test_exit_codes_values_and_limits(tmp_path: Path) -> None:
    speed = {"value": {"regex": r"speed (\d+)", "unit": "MiB/s"}, "limit": {"min": 100}}
    rows = inspect_machine(
        inspection(
            tmp_path,
            {
                "fine": check("echo all well"),
                "warns": check("echo hot; exit 1"),
                "fails": check("echo broken; exit 2", level="note"),
                "unknown": check("exit 3"),
                "strange": check("exit 77"),
                "fast": check("echo speed 200", **speed),
                "slow": check("echo speed 50", **speed),
                "silent": check("echo nothing", **speed),
                "cut_off": check("echo speed 500; exit 9", **speed),
                "absent": CheckTable(command=("forewarn-absent-program",)),
            },
        )
    )
    assert statuses(rows) == {
        **{"fine": "ok", "warns": "degraded", "fails": "failed", "unknown": "blind"},
        **{"strange": "blind", "fast": "ok", "slow": "failed", "silent": "blind"},
        **{"cut_off": "blind", "absent": "not_run"},
    }
    texts = {row["check"]: row["text"] for row in rows}
    assert texts["fails"] == "broken"
    assert texts["slow"] == "50 MiB/s is below the limit 100"
    assert "no value in the output: nothing" in texts["silent"]
    assert "forewarn-absent-program is not installed" in texts["absent"]
    stored = read_results(tmp_path).to_pylist()
    assert {row["check"]: row["status"] for row in stored} == statuses(rows)
    assert len({row["run"] for row in stored}) == 1
    versions = json.loads(stored[0]["versions"])
    assert versions["kernel"] == os.uname().release
    assert "definition" in versions


def test_hanging_forking_and_flooding_checks(tmp_path: Path) -> None:
    tag = f"forewarn-test-{os.getpid()}"
    sleep = f"exec -a {tag} sleep 600"
    ignores = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
    fork = (
        "import os, time\n"
        "for _ in range(20):\n"
        "    if os.fork() == 0:\n"
        "        os.setsid()\n"
        "        time.sleep(600)\n"
    )
    flood = "import sys\nwhile True: sys.stdout.write('x' * 65536)"
    # Each of these runs as long as it is allowed to.
    checks = {
        "hangs": CheckTable.model_validate({"command": ["bash", "-c", sleep], "timeout": "300ms"}),
        "ignores": CheckTable.model_validate(
            {"command": [sys.executable, "-c", ignores, tag], "timeout": "300ms"}
        ),
        "forks": CheckTable.model_validate(
            {"command": [sys.executable, "-c", fork, tag], "timeout": "20s"}
        ),
        "floods": CheckTable.model_validate(
            {"command": [sys.executable, "-c", flood, tag], "timeout": "1s"}
        ),
        "after": check("echo still here"),
    }
    rows = inspect_machine(inspection(tmp_path, checks))
    assert statuses(rows) == {
        **dict.fromkeys(("hangs", "ignores", "floods"), "timeout"),
        **{"forks": "ok", "after": "ok"},
    }
    assert all(count == 1 for count in Counter(row["check"] for row in rows).values())
    wait_until_gone(tag)


@pytest.fixture
def frozen_folder(tmp_path: Path, require_program: Callable[[str, str], Path]) -> Iterator[Path]:
    """Return a folder in which a write hangs in the kernel (state D) and takes no signal."""
    image, folder = tmp_path / "image", tmp_path / "frozen"
    image.write_bytes(bytes(16 << 20))
    folder.mkdir()
    mkfs = str(require_program("mkfs.ext4", "e2fsprogs"))
    fsfreeze = str(require_program("fsfreeze", "util-linux"))
    mount = ["mount", "-o", "loop", str(image), str(folder)]
    for command in ([mkfs, "-q", str(image)], mount, [fsfreeze, "-f", str(folder)]):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            subprocess.run(["umount", folder], capture_output=True, check=False)
            skip_or_fail(f"a file system cannot be frozen here: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run([fsfreeze, "-u", folder], capture_output=True, check=False)
        for _ in range(500):  # until the writer has ended
            if subprocess.run(["umount", folder], capture_output=True, check=False).returncode == 0:
                break
            time.sleep(0.01)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_check_that_hangs_in_the_kernel_does_not_delay_the_rest(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, frozen_folder: Path
) -> None:
    module = "forewarn.pipelines.runtime.bounded_program"
    monkeypatch.setattr(f"{module}._KILL_WAIT_SECONDS", 0.1)
    monkeypatch.setattr("forewarn.pipelines.inspection.check_runner._TERM_SECONDS", 0.1)
    checks = {
        "stuck": check(f"echo x > {frozen_folder}/file", timeout="300ms"),
        "after": check("true"),
    }
    rows = inspect_machine(inspection(tmp_path / "out", checks))
    assert statuses(rows) == {"stuck": "timeout", "after": "ok"}
    assert len(read_results(tmp_path / "out")) == 2


def test_output_is_capped() -> None:
    run = run_program([sys.executable, "-c", "print('x' * 10_000_000)"], 60.0, max_bytes=1000)
    assert (run.code, len(run.output)) == (0, 1000)


def test_checks_run_at_low_priority(tmp_path: Path) -> None:
    value = {"regex": r"(\d+)", "unit": "1"}
    script = f"{sys.executable} -c 'import os; print(os.nice(0))'"
    (row,) = inspect_machine(inspection(tmp_path, {"nice": check(script, value=value)}))
    assert row["value"] >= min(19, os.nice(0))


def test_cheap_checks_come_first_and_a_dead_machine_is_not_loaded(tmp_path: Path) -> None:
    order = tmp_path / "order"
    checks = {
        "load": check(f"echo load >> {order}", conditions=["idle"]),
        "long": check(f"echo long >> {order}", timeout="2min"),
        "dead": check(f"echo dead >> {order}; exit 2", level="drain"),
        "identity": check(f"echo identity >> {order}", category="identity"),
    }
    rows = inspect_machine(inspection(tmp_path / "a", checks))
    assert order.read_text().split() == ["identity", "dead", "long"]
    assert statuses(rows)["load"] == "not_run"
    assert rows[-1]["text"] == "dead has failed"
    order.unlink()
    rows = inspect_machine(inspection(tmp_path / "b", checks, all_checks=True))
    assert statuses(rows)["load"] == "ok"


def test_time_of_the_inspection_ends(tmp_path: Path) -> None:
    checks = {"first": check("exec sleep 600", timeout="30s"), "second": check("true", repeat=3)}
    rows = inspect_machine(inspection(tmp_path, checks, timeout=0.3))
    assert statuses(rows) == {"first": "timeout", "second": "not_run"}
    assert len(rows) == 2


def test_repeats_are_rows_of_one_run(tmp_path: Path) -> None:
    rows = inspect_machine(inspection(tmp_path, {"many": check("true", repeat=4)}))
    assert len(rows) == 4
    assert len({row["run"] for row in rows}) == 1


def test_equal_commands_run_once(tmp_path: Path) -> None:
    log = tmp_path / "log"
    query = f"echo x >> {log}; echo '0, 7, 9'"
    rows = inspect_machine(
        inspection(
            tmp_path / "out",
            {
                "a": check(query, value={"regex": r"^(?P<slot>\d+), (?P<value>\d+)"}),
                "b": check(query, value={"regex": r"^(?P<slot>\d+), \d+, (?P<value>\d+)"}),
            },
        )
    )
    assert [(row["check"], row["slot"], row["value"]) for row in rows] == [
        ("a", "0", 7.0),
        ("b", "0", 9.0),
    ]
    assert log.read_text() == "x\n"


def test_second_inspection_of_a_machine_is_refused(tmp_path: Path) -> None:
    with (
        inspection_run._only_inspection("node-locked"),
        pytest.raises(InspectionError, match="another inspection of node-locked is running"),
    ):
        inspect_machine(Inspection("node-locked", "s", {}, tmp_path))
    assert not list(tmp_path.iterdir())


def test_busy_gpu_is_left_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    tool = tmp_path / "bin/nvidia-smi"
    tool.parent.mkdir()
    tool.write_text("#!/bin/sh\necho 4711\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tool.parent}:{os.environ['PATH']}")
    checks = {"light": check("true"), "heavy": check("true", conditions=["idle"])}
    with pytest.raises(InspectionError, match="process 4711"):
        inspect_machine(inspection(tmp_path / "out", checks))
    assert not (tmp_path / "out").exists()
    rows = inspect_machine(inspection(tmp_path / "out", checks, while_busy=True))
    assert statuses(rows) == {"light": "ok", "heavy": "not_run"}


def test_machine_with_other_work_is_not_measured(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("forewarn.pipelines.inspection.check_runner.cpu_share", lambda _: 0.63)
    checks = {"light": check("true"), "heavy": check("true", conditions=["idle"])}
    rows = inspect_machine(inspection(tmp_path, checks))
    assert statuses(rows) == {"light": "ok", "heavy": "not_run"}
    assert "other work uses 63 % of the CPUs" in rows[-1]["text"]


def test_share_of_the_cpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stat = tmp_path / "proc/stat"
    stat.parent.mkdir()
    stat.write_text("cpu  100 0 50 800 50 0 0 0 0 0\ncpu0 1\n")
    # Half a second of user time and half of waiting.
    later = "cpu  150 0 50 825 75 0 0 0 0 0\n"
    monkeypatch.setattr(f"{check_runner.__name__}.time.sleep", lambda _: stat.write_text(later))
    assert cpu_share(tmp_path) == pytest.approx(0.5)
    assert cpu_share(tmp_path / "absent") == 0.0


@pytest.mark.parametrize("machine", ["../etc", "a/b", "", "a b"])
def test_bad_name_of_a_machine(
    machine: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["inspect", "run", "--set", "quick", "--machine", machine]
    assert main([*arguments, "--out", str(tmp_path / "out")]) == 2
    assert "--machine" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


BURN_IN = """
[check.burn_a]
command = ["sh", "-c", "exec -a {tag} sleep 0.02"]
category = "cpu"
when = ["killed"]
repeat = 20
[check.burn_b]
command = ["bash", "-c", "(exec -a {tag} setsid sleep 0.05) & wait"]
category = "memory"
when = ["killed"]
repeat = 20
"""


# Forks a process for each inspection, since imports would take most of the time, and kills it.
KILLER = """
import os, random, signal, sys, time
from pathlib import Path
from forewarn.pipelines.inspection.check_files import load_checks, select_checks
from forewarn.pipelines.inspection.inspection_run import Inspection, inspect_machine
import pyarrow.parquet

checks = select_checks(load_checks([Path(sys.argv[1])]), "killed")
inspection = Inspection(sys.argv[3], "killed", checks, Path(sys.argv[2]))
moments, kills = random.Random(7), 0
while True:
    pid = os.fork()
    if pid == 0:
        inspect_machine(inspection)
        os._exit(0)
    end = time.monotonic() + moments.uniform(0.0, 0.25)
    while (ended := os.waitpid(pid, os.WNOHANG))[0] == 0 and time.monotonic() < end:
        time.sleep(0.001)
    if ended[0]:
        assert ended[1] == 0, ended
        break
    if kills < 50:
        os.kill(pid, signal.SIGKILL)
        kills += 1
    _, status = os.waitpid(pid, 0)
    if kills == 50 and status == 0:
        break
print(kills)
"""


def test_killed_at_many_moments_each_result_is_there_once(tmp_path: Path) -> None:
    tag = f"forewarn-burn-in-{os.getpid()}"
    site, out = tmp_path / "site.toml", tmp_path / "out"
    site.write_text(BURN_IN.replace('"sh"', '"bash"').replace("{tag}", tag))
    arguments = [str(site), str(out), f"node-{os.getpid()}"]
    killer = [sys.executable, "-c", KILLER, *arguments]
    done = subprocess.run(killer, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) >= 10
    wait_until_gone(tag)
    rows = read_results(out).to_pylist()
    assert Counter((row["check"], row["status"]) for row in rows) == {
        ("burn_a", "ok"): 20,
        ("burn_b", "ok"): 20,
    }
    assert len({row["run"] for row in rows}) == 1
    assert not list(out.glob("_state/*.jsonl"))
    assert not list(out.glob("date=*/.*"))


def test_old_journal_is_published_and_not_continued(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    checks = {"a": check("true"), "b": check("true")}
    plan = inspection(tmp_path, checks)
    run = inspection_run._run

    def killed(*arguments: Any) -> Any:
        if arguments[3] is checks["b"]:
            raise KeyboardInterrupt
        return run(*arguments)

    monkeypatch.setattr(inspection_run, "_run", killed)
    with pytest.raises(KeyboardInterrupt):
        inspect_machine(plan, now=lambda: T0)
    monkeypatch.setattr(inspection_run, "_run", run)
    rows = inspect_machine(plan, now=lambda: T0 + 2 * DAY)
    assert statuses(rows) == {"a": "ok", "b": "ok"}
    stored = read_results(tmp_path).to_pylist()
    assert Counter(row["check"] for row in stored) == {"a": 2, "b": 1}


def test_burn_in_repeats_the_set_and_ends(tmp_path: Path) -> None:
    checks = {"work": check("sleep 0.2"), "absent": CheckTable(command=("forewarn-absent",))}
    rows = inspect_machine(inspection(tmp_path, checks, burn_in=0.5))
    work = [row for row in rows if row["check"] == "work"]
    assert sum(row["seconds"] for row in work) >= 0.5
    assert 2 <= len(work) <= 3
    # Nothing to run is no burn-in of 48 hours.
    alone = {"absent": checks["absent"]}
    assert len(inspect_machine(inspection(tmp_path / "x", alone, burn_in=48 * 3600.0))) == 1


def test_command_prints_results(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    site = tmp_path / "site.toml"
    site.write_text(
        '[check.bad]\ncommand = ["sh", "-c", "echo no; exit 2"]\nwhen = ["mine"]\n'
        '[check.gone]\ncommand = ["forewarn-absent"]\nwhen = ["mine"]\n'
    )
    arguments = ["inspect", "run", "--set", "mine", "--checks", str(site), "--machine", "n1"]
    assert main([*arguments, "--out", str(tmp_path / "out")]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "bad: failed: no",
        "not run: forewarn-absent is not installed (1 check)",
        "n1: 2 checks: 1 failed, 1 not run",
    ]
    assert main([*arguments, "--json", "--out", str(tmp_path / "out")]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert statuses(rows) == {"bad": "failed", "gone": "not_run"}


def test_bare_machine_agrees_with_itself(tmp_path: Path) -> None:
    """Identity does not change between two runs."""
    checks = {
        name: table
        for name, table in select_checks(load_checks(), "quick").items()
        if table.category == "identity" and table.value.builtin is None
    }
    first, second = (
        {(r["check"], r["slot"]): r["value"] for r in inspect_machine(inspection(path, checks))}
        for path in (tmp_path / "a", tmp_path / "b")
    )
    assert first == second
    assert first["memory_total", None] > 0
    assert isinstance(read_results(tmp_path / "a"), pa.Table)


def test_file_of_node_health_check_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "nhc.conf"
    config.write_text(
        "* || check_fs_mount_rw -f /proc\n"
        "* || check_file_test -r -s /etc/passwd\n"
        "* || check_file_test -d -x /proc/absent\n"
        "* || check_hw_cpuinfo 999\n"
        "* || check_ps_daemon forewarn-absent\n"
        "* || check_fs_free /tmp 0%\n"
        "* || check_dmi_data_match 'BIOS'\n"
        "other* || check_hw_eth eth9\n"
    )
    arguments = ["inspect", "run", "--set", "nhc", "--nhc", str(config), "--machine", "n7"]
    assert main([*arguments, "--json", "--out", str(tmp_path / "out")]) == 0
    captured = capsys.readouterr()
    rows = [json.loads(line) for line in captured.out.splitlines()]
    assert {row["check"].split("_", 2)[2] + row["check"][4]: row["status"] for row in rows} == {
        "fs_mount_rw1": "ok",
        "file_test2": "ok",
        "file_test3": "failed",
        "hw_cpuinfo4": "failed",
        "ps_daemon5": "failed",
        "fs_free6": "ok",
    }
    assert "line 7: check_dmi_data_match 'BIOS': not understood, does not run" in captured.err
