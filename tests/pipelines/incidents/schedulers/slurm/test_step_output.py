"""Output of the steps of a real Slurm job: slurmstepd sends it to srun, which writes the file."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.pipelines.incidents.schedulers.slurm.conftest import Cluster

from forewarn.pipelines.agent.jobs.log_copier import LogCopier
from forewarn.pipelines.agent.jobs.training_processes import JobProcess, find_processes

TRAIN = "import time; print('[rank%s]: step 1' % __import__('os').environ['RANK'], flush=True); "


def start(slurm: Cluster, folder: Path, *srun_options: str) -> list[JobProcess]:
    """Start two ranks on two nodes, and return them once they have written."""
    script = folder / "rank.sh"
    script.write_text(
        "#!/bin/sh\nexport RANK=$SLURM_PROCID\n"
        f"exec {sys.executable} -c \"{TRAIN}open('{folder}/wrote-' + '$RANK', 'w'); "
        'time.sleep(999)"\n'
    )
    script.chmod(0o755)
    command = ["sbatch", "--parsable", "-N2", "-n2", "-o", str(folder / "slurm-%j.out")]
    step = " ".join(["srun", *srun_options, str(script)])
    job = slurm.call(*command, "--wrap", step).strip()
    assert job.isdigit(), job
    slurm.until(lambda: len(list(folder.glob("wrote-*"))) == 2, "two ranks")
    return [process for process in find_processes() if process.job == job]


def test_file_of_srun_is_copied(slurm: Cluster, tmp_path: Path) -> None:
    ranks = start(slurm, tmp_path, "--label")
    (console,) = tmp_path.glob("slurm-*.out")
    slurm.until(lambda: console.read_text().count("step") == 2, "output")
    result = LogCopier("node-1", 10_000).copy(ranks, tmp_path / "logs")
    assert [rank.rank for rank in ranks] == [0, 1]
    copies = {path.name: path.read_text() for path in (tmp_path / "logs/node-1").iterdir()}
    assert {name: set(text.splitlines()) for name, text in copies.items()} == {
        f"{console.stem}.log": {"0: [rank0]: step 1", "1: [rank1]: step 1"}
    }
    assert result.unseen == ()
