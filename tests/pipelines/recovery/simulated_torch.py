"""Stands for `torch.distributed.run` where torch is not installed: starts the ranks of one host.

Each rank is a child in a session of its own, as torchrun starts them. The host ends with the exit
code of the first rank that fails.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

__all__ = ["write_job"]

EXAMPLES = Path(__file__).parents[3] / "examples"
_RUN = """
import os, subprocess, sys, time

words = sys.argv[1:]
options = {}
while words and words[0].startswith("--"):
    options[words[0]], words = words[1], words[2:]
size, host = int(options["--nproc-per-node"]), int(options["--node-rank"])
ranks = []
for local in range(size):
    logs = os.path.join(options["--log-dir"], options["--rdzv-id"], "attempt_0", str(local))
    os.makedirs(logs)
    values = {"RANK": host * size + local, "LOCAL_RANK": local, "GROUP_RANK": host}
    environment = {**os.environ, **{name: str(value) for name, value in values.items()}}
    with open(os.path.join(logs, "stdout.log"), "wb") as out:
        ranks.append(subprocess.Popen(
            [sys.executable, *words], env=environment, stdout=out, stderr=out,
            start_new_session=True,
        ))
while any(rank.poll() is None for rank in ranks):
    if any(rank.poll() for rank in ranks):
        break
    time.sleep(0.02)
codes = [rank.poll() for rank in ranks]
failed = [local for local, code in enumerate(codes) if code]
if failed:
    now, [local, *_] = time.gmtime(), failed
    print("torch.distributed.elastic.multiprocessing.errors.ChildFailedError:")
    print("=" * 56, f"{words[0]} FAILED", "-" * 56, sep="\\n")
    print("Failures:", "  <NO_OTHER_FAILURES>", "-" * 56, sep="\\n")
    print("Root Cause (first observed failure):", "[0]:", sep="\\n")
    print(time.strftime("  time      : %Y-%m-%d_%H:%M:%S", now))
    print("  host      : localhost")
    print(f"  rank      : {host * size + local} (local_rank: {local})")
    print(f"  exitcode  : {codes[local]} (pid: {ranks[local].pid})")
    print("  error_file: <N/A>", "  traceback : none", "=" * 56, sep="\\n")
    sys.exit(1)
"""


_WORKER = """
import os, pathlib, signal, sys, time
from save_on_notice import Notice
folder, steps, fault = pathlib.Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
saved = folder / "checkpoint"
step = int(saved.read_text()) if saved.exists() else 0
def say(text):
    now = time.time()
    stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(now)) + f",{int(now * 1000) % 1000:03}"
    print(stamp, "INFO", text, flush=True)
is_faulty = os.environ["FOREWARN_ATTEMPT"] == "1" and os.environ["RANK"] == "1"
notice = Notice(os.environ["FOREWARN_NOTICES"], os.environ["FOREWARN_JOB"])
while step < steps:
    if os.environ["RANK"] == "0" and notice.asks_to_save():
        saved.write_text(str(step))
        notice.answer(step)
        time.sleep(600)  # the next attempt goes on
    if is_faulty and step == 5 and fault == "ecc":
        raise RuntimeError("CUDA error: uncorrectable ECC error encountered")
    if step == 5 and fault == "program":
        raise ValueError("label 7 is out of range")
    if is_faulty and step == 5 and fault == "agent" and os.environ["NODE_ID"] == "1":
        os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(600)
    if is_faulty and step == 5 and fault == "hang":
        time.sleep(600)
    time.sleep(0.05)
    step += 1
    say(f"step {step} loss 2.5 lr 0.001")
    if step % 4 == 0:
        say(f"saving checkpoint at step {step}")
        if os.environ["RANK"] == "0":
            saved.write_text(str(step))
        say(f"successfully saved checkpoint from step {step}")
"""


def _write_simulated_torch(folder: Path) -> Path:
    """Write the package into a folder, and return the folder for `PYTHONPATH`."""
    package = folder / "torch" / "distributed"
    package.mkdir(parents=True)
    for path in (folder / "torch", package):
        (path / "__init__.py").write_text("")
    (package / "run.py").write_text(_RUN)
    return folder


def write_job(folder: Path, fault: str, **values: object) -> Path:
    """Write the TOML of a job of two hosts and a spare."""
    (folder / "worker.py").write_text(_WORKER)
    shutil.copy(EXAMPLES / "save_on_notice.py", folder)
    program = [str(folder / "worker.py"), str(folder), "12", fault]
    table: dict[str, object] = {
        "hosts": ["n[0-2]"],
        "nodes": 2,
        "processes": 1,
        "program": program,
        "folder": "job",
        "python": sys.executable,
        "silence": "3s",
        "look": "60s",
        "grace": "2s",
        "diagnoses": "diagnoses.jsonl",
        **values,
    }
    torch = _write_simulated_torch(folder / "packages")
    lines = [f"{name} = {json.dumps(value)}" for name, value in table.items()]
    lines += ["[environment]", f'PYTHONPATH = "{torch}"']
    path = folder / "job.toml"
    path.write_text("\n".join(lines) + "\n")
    return path
