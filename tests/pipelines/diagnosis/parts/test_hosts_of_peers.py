"""Hosts that logs name as peers, and errors after the end of the training, through the command."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from forewarn.pipelines.cli.main import main

Judge = Callable[..., dict[str, Any]]
RULE = "-" * 74
STEPS = "".join(f"step {number} loss 2.{number}\n" for number in range(40, 52))


@pytest.fixture
def judge(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Judge:
    """Return `judge(name=text, ...)`, which returns the verdict on logs."""

    def run(**texts: str) -> dict[str, Any]:
        for name, text in texts.items():
            path = tmp_path / "logs" / f"{name.replace('_', '-')}.log"
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
        assert main(["diagnose", "run", "--job", str(tmp_path), "--json"]) == 0
        line: dict[str, Any] = json.loads(capsys.readouterr().out)
        return line

    return run


@pytest.mark.parametrize("peer", ["ip-10-7-0-6.lan<41>", "10.7.0.6<41>", "[ip-10-7-0-6]<41>"])
def test_peer_is_the_machine_of_a_log(judge: Judge, peer: str) -> None:
    verdict = judge(
        ip_10_7_0_5=f"{STEPS}[rank0]: NCCL WARN Connection closed by remote peer {peer}\n",
        ip_10_7_0_6="W0301 04:00:07.1 77 api.py:719] Received 15 death signal, shutting down\n"
        "torch.distributed.elastic.SignalException: Process 77 got signal: 15\n",
    )
    assert verdict["kind"] == "crash"
    assert verdict["machine"] == "ip-10-7-0-6"


def test_hosts_of_a_console_are_witnesses(judge: Judge) -> None:
    lost = "NCCL WARN NET/IB : Got completion from peer {}<401> with error 12, opcode 1, len 0"
    lines = [
        "cn7:10:12 [0] net_ib.cc:93 NCCL WARN NET/IB : Got async event : port error",
        f"cn8:20:22 [3] net_ib.cc:12 {lost.format('cn7.lan')}",
        f"cn9:30:31 [1] net_ib.cc:12 {lost.format('cn7')}",
        f"cn7:10:13 [1] net_ib.cc:12 {lost.format('cn9')}",
    ]
    verdict = judge(console=STEPS + "\n".join(lines) + "\n")
    assert (verdict["kind"], verdict["machine"]) == ("crash", "cn7")


BOXES = [
    "ORTE has lost communication with its daemon located on node:\n\n  hostname:  {}\n\nThis is\n",
    "PRTE has lost communication with a remote daemon.\n\n  HNP daemon   : [prte-a,0] on node m0\n"
    "  Remote daemon: [prte-a,2] on node {}\n\nThis is usually due to\n",
    "ORTE does not know how to route a message to the specified daemon\nlocated on the indicated "
    "node:\n\n  my node:   m0\n  target node:  {}\n\n",
    "[mpiexec@m0] control_cb (cb.c:7): connection to proxy 2 at host {} failed\n",
]


@pytest.mark.parametrize("box", BOXES)
@pytest.mark.parametrize("indent", ["", "  "])
def test_mpi_names_the_host_below(judge: Judge, box: str, indent: str) -> None:
    message = f"{RULE}\n{box.format('m4.lan')}{RULE}\n"
    verdict = judge(job="".join(f"{indent}{line}\n" for line in message.splitlines()))
    assert (verdict["kind"], verdict["machine"]) == ("crash", "m4.lan")


def test_host_outside_the_box_is_not_named(judge: Judge) -> None:
    box = "ORTE has lost communication with its daemon located on node\n"
    verdict = judge(job=f"{RULE}\n{box}{RULE}\nhostname: m4\n")
    assert verdict["machine"] is None


EXIT = """Traceback (most recent call last):
  File "/opt/lib/weakref.py", line 7, in _exitfunc
    f()
  File "/opt/lib/shutil.py", line 9, in rmtree
    os.rmdir(path)
OSError: [Errno 16] Device or resource busy: '/scratch/cache-1'
"""
RAISED = EXIT.replace("_exitfunc", "save_last")
DONE = ["Training complete in 3h 2m", "INFO: finished training.", "Fine-tuning has ended!"]


@pytest.mark.parametrize("done", DONE)
def test_error_at_exit_is_no_crash(judge: Judge, done: str) -> None:
    verdict = judge(train=f"{STEPS}{done}\n{EXIT}")
    assert verdict["kind"] == "none"
    assert "Errno 16" in verdict["cause"]
    assert "Errno 16" in verdict["evidence"][0]["says"]


@pytest.mark.parametrize(
    "text",
    [
        f"{STEPS}{EXIT}",
        f"{STEPS}{DONE[0]}\n{RAISED}",
        f"{STEPS}{RAISED}{DONE[0]}\n{EXIT}",
        f"{DONE[0]}\n{STEPS}{EXIT}",
        f"{STEPS}{DONE[0]}\n{RAISED}{EXIT}",
        f"{STEPS}{DONE[0]}\nException ignored in: <Cache at 0x7f>\n{RAISED}{RAISED}",
        f"{STEPS}epoch 3 training complete\n{EXIT}",
        f"{STEPS}{DONE[0]}\n{EXIT}failed (exitcode: 1) local_rank: 0 (pid: 77) of binary: python\n",
        f"{STEPS}{DONE[0]}\n{EXIT}x.py: Segmentation fault (core dumped)\n",
    ],
)
def test_other_errors_stay_a_crash(judge: Judge, text: str) -> None:
    assert judge(train=text)["kind"] == "crash"


def test_rank_that_has_not_ended_keeps_the_crash(judge: Judge) -> None:
    assert judge(rank_0=f"{STEPS}{DONE[0]}\n{EXIT}", rank_1=STEPS)["kind"] == "crash"
