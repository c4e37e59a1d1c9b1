"""Stands for `torch.distributed.run` where torch is not installed: starts the ranks of one host.

Each rank is a child in a session of its own, as torchrun starts them. The host ends with the exit
code of the first rank that fails.
"""

from __future__ import annotations

from pathlib import Path

__all__ = ["write_simulated_torch"]

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


def write_simulated_torch(folder: Path) -> Path:
    """Write the package into a folder, and return the folder for `PYTHONPATH`."""
    package = folder / "torch" / "distributed"
    package.mkdir(parents=True)
    for path in (folder / "torch", package):
        (path / "__init__.py").write_text("")
    (package / "run.py").write_text(_RUN)
    return folder
