"""Lines of launchers when a job fails, and the prefixes they put before the lines of a rank.

The forms are those of torchrun of PyTorch 2.4 to 2.10, Slurm 23 and 24, Kubernetes, Open MPI 4 and the
launcher of DeepSpeed 0.16. Fields are those of `LineWriter`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

__all__ = ["LAUNCHERS", "Launcher", "Placement"]


class Placement(NamedTuple):
    """Files that lines go to, and what precedes each line there: templates.

    Attributes
    ----------
    path, prefix : str
        Of the lines of ranks.
    own_path, own_prefix : str
        Of the launcher's own lines.
    """

    path: str
    prefix: str
    own_path: str
    own_prefix: str = ""


@dataclass(frozen=True, slots=True)
class Launcher:
    """How a launcher writes the lines of a job.

    Attributes
    ----------
    variants : dict of str to Placement
        Where lines go, by variant.
    failed : tuple of str
        Lines about the rank that failed first, after it ended with an exit code.
    killed : tuple of str
        The same after a signal.
    others : tuple of str
        Lines about each machine whose ranks are ended because of it.
    first_only : bool
        These lines are written where the job was started, on the first machine, not on each.
    """

    variants: dict[str, Placement]
    failed: tuple[str, ...]
    killed: tuple[str, ...]
    others: tuple[str, ...]
    first_only: bool


_ELASTIC = "{time:%m%d %H:%M:%S}.{us} {agent} torch/distributed/elastic/multiprocessing/api.py:"
_CLOSING = "W" + _ELASTIC + "897] Sending process {next_pid} closing signal SIGTERM"
_RULE, _LINE = "=" * 60, "-" * 60


def _child_failed(traceback: str) -> tuple[str, ...]:
    return (
        _CLOSING,
        "E"
        + _ELASTIC
        + "869] failed (exitcode: {code}) local_rank: {local} (pid: {pid}) of binary: /usr/bin/python3",
        "Traceback (most recent call last):",
        '  File "/usr/local/bin/torchrun", line 8, in <module>',
        "    sys.exit(main())",
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ",
        _RULE,
        "/workspace/train.py FAILED",
        _LINE,
        "Failures:",
        "  <NO_OTHER_FAILURES>",
        _LINE,
        "Root Cause (first observed failure):",
        "[0]:",
        "  time      : {time:%Y-%m-%d_%H:%M:%S}",
        "  host      : {host}",
        "  rank      : {rank} (local_rank: {local})",
        "  exitcode  : {code} (pid: {pid})",
        "  error_file: <N/A>",
        "  traceback : " + traceback,
        _RULE,
    )


_TORCHRUN = (
    _child_failed("To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html"),
    _child_failed("Signal {signal} ({signal_name}) received by PID {pid}"),
    (
        _CLOSING,
        "torch.distributed.elastic.multiprocessing.api.SignalException: Process {agent} got signal: 15",
    ),
)
_DS = "[{time:%Y-%m-%d %H:%M:%S},{ms}] "
_DS_KILLING = _DS + "[INFO] [launch.py:319:sigkill_handler] Killing subprocess {pid}"
_DS_EXIT = (
    _DS_KILLING,
    _DS
    + "[ERROR] [launch.py:325:sigkill_handler] ['/usr/bin/python3', '-u', 'train.py', '--local_rank={last_local}', '--deepspeed', '--deepspeed_config', 'ds.json'] exits with return code = {code}",
)
_MPI_RULE = "-" * 74
_POD_TIME = "{time:%Y-%m-%dT%H:%M:%S}.{ns}Z "

LAUNCHERS = {
    "files": Launcher(
        {"rank": Placement("{rank}.log", "", "launcher.log")}, *_TORCHRUN, first_only=False
    ),
    "torchrun": Launcher(
        {
            "tree": Placement("{host}/attempt_0/{local}/{stream}.log", "", "{host}/torchrun.log"),
            "console": Placement("{host}.log", "", "{host}.log"),
            "tee": Placement("{host}.log", "[default{local}]:", "{host}.log"),
        },
        *_TORCHRUN,
        first_only=False,
    ),
    "slurm": Launcher(
        {
            "plain": Placement("slurm-{job}.out", "", "slurm-{job}.out"),
            "task": Placement("slurm-{job}_{rank}.out", "", "slurm-{job}.out"),
            "label": Placement("slurm-{job}.out", "{label}: ", "slurm-{job}.out"),
        },
        (
            "srun: error: {host}: task {rank}: Exited with exit code {code}",
            "srun: Terminating StepId={job}.0",
        ),
        ("srun: error: {host}: task {rank}: {signal_word}",),
        (
            "slurmstepd: error: *** STEP {job}.0 ON {head} CANCELLED AT {time:%Y-%m-%dT%H:%M:%S} ***",
            "srun: error: {host}: tasks {first_task}-{last_task}: Terminated",
        ),
        first_only=True,
    ),
    "kubernetes": Launcher(
        {
            "plain": Placement("{host}.log", "", "{host}.log"),
            "timestamps": Placement("{host}.log", _POD_TIME, "{host}.log", _POD_TIME),
        },
        *_TORCHRUN,
        first_only=False,
    ),
    "mpirun": Launcher(
        {"tagged": Placement("console.log", "[1,{rank}]<{stream}>:", "console.log")},
        (
            _MPI_RULE,
            "mpirun detected that one or more processes exited with non-zero status, thus causing",
            "the job to be terminated. The first process to do so was:",
            "",
            "  Process name: [[51{n},1],{rank}]",
            "  Exit code:    {code}",
            _MPI_RULE,
        ),
        (
            _MPI_RULE,
            "mpirun noticed that process rank {rank} with PID {pid} on node {host} exited on signal {signal} ({signal_word}).",
            _MPI_RULE,
        ),
        (),
        first_only=True,
    ),
    "deepspeed": Launcher(
        {"pdsh": Placement("console.log", "{host}: ", "console.log", "{host}: ")},
        _DS_EXIT,
        _DS_EXIT,
        (_DS_KILLING, "ssh exited with exit code {pdsh_code}"),
        first_only=False,
    ),
}
