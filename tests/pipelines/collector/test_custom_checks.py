"""A custom check from a real agent through a real collector to findings."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from forewarn.pipelines.incidents.replay.policy_file import load_policy
from forewarn.pipelines.incidents.sources.event_findings import event_findings, read_events
from forewarn.response.state.finding import FindingKind, Severity

FOREWARN = [
    sys.executable,
    "-c",
    "from forewarn.pipelines.cli.main import main; raise SystemExit(main())",
]
PATIENCE = 60.0  # seconds until a process that does nothing is an error
SMI = """#!/bin/sh
echo "index, serial, uuid, pci.bus_id, name, temperature.gpu"
echo "0, S1, GPU-1, 00000000:11:00.0, NVIDIA H100, 40"
"""


def wait_for(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def results(records: Path) -> list[dict[str, Any]]:
    rows = read_events(records).to_pylist()
    return sorted((row for row in rows if row["kind"] == "check"), key=lambda row: row["timestamp"])


def test_custom_check_becomes_findings(tmp_path: Path, free_port: Callable[[], int]) -> None:
    port, records, code = free_port(), tmp_path / "records", tmp_path / "code"
    settings, policy, smi = tmp_path / "site.toml", tmp_path / "agent.toml", tmp_path / "nvidia-smi"
    smi.write_text(SMI)
    smi.chmod(0o755)
    code.write_text("2")
    settings.write_text('[collector]\npublish_every = "50ms"\n')
    (tmp_path / "kmsg").write_text("")
    script = f"echo 'scratch is not mounted'; exit $(cat {code})"
    policy.write_text(
        f'collector = "http://127.0.0.1:{port}"\nmachine_id = "g1"\nstate = "{tmp_path}/state"\n'
        f'kernel_log = "{tmp_path}/kmsg"\ngpu = "nvidia-smi"\n'
        f'[check.scratch]\ncommand = ["/bin/sh", "-c", "{script}"]\nevery = "1s"\ntimeout = "1s"\n'
    )
    environment = os.environ | {
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "FOREWARN_TOKENS": "site=secret",
        "FOREWARN_TOKEN": "secret",
    }
    collect = ["collect", "--out", str(records), "--config", str(settings), "--port", str(port)]
    processes = [
        subprocess.Popen([*FOREWARN, *arguments], env=environment)
        for arguments in (collect, ["agent", "--policy", str(policy)])
    ]
    try:
        wait_for(lambda: any(row["severity"] == "error" for row in results(records)))
        code.write_text("0")
        wait_for(lambda: any(row["severity"] == "ok" for row in results(records)))
    finally:
        for process in processes:
            process.send_signal(signal.SIGTERM)
        for process in processes:
            process.wait(60)
    failed = next(row for row in results(records) if row["severity"] == "error")
    passed = next(row for row in results(records) if row["severity"] == "ok")
    assert failed["raw"] == "scratch is not mounted"
    past = list(event_findings(read_events(records), load_policy()))
    finding = next(item.finding for item in past if "custom scratch error" in item.finding.id)
    assert (finding.kind, finding.severity) == (FindingKind.REPORT, Severity.NOTICE)
    assert finding.cause == "check custom scratch"
    assert finding.valid_until >= passed["timestamp"]
    assert finding.evidence["line"].startswith("observes only: the first day")
