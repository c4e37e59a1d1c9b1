"""Forms in which launchers, schedulers and coordinators report how a process ended."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

__all__ = ["LAUNCHER_FORMS", "LauncherForm"]

_HOST = r"(?P<host>[A-Za-z0-9][\w.:-]{0,250})"
_NUMBERED_HOST = r"(?:(?P<host>(?=[A-Za-z_-]*\d)[\w.-]+): )?\b"  # `ERROR: ` is no host
_ADDRESS = r"\[?(?P<host>[\d.:a-fA-F]{3,45})"
_WORD = (  # as the C library names signals
    r"(?P<word>Killed|Terminated|Aborted|Segmentation fault|Out Of Memory|Bus error"
    r"|Floating point exception|Illegal instruction|Hangup|Interrupt)"
)
_NEXT_LINE = r"[^\n]{0,120}\n[^\n]{0,120}?"  # each line may have a prefix
# Rich consoles wrap a report, and put the line of source code in a column to its right or left.
_WRAP = r"[ \t]*(?:[\w./-]{1,60}\.py:\d+)?[ \t]*(?:\n[ \t]*)?"
_LOCAL = rf"local_rank:{_WRAP}(?P<local_rank>\d+)\b"
_PID = rf",?{_WRAP}\(?pid:{_WRAP}(?P<pid>\d+)\b\)?"
_CODE = rf"exitcode:{_WRAP}(?P<code>-?\d+)\b"
_FIELD = r"(?:[^\n]{0,120}?"  # a line of a block that may be missing
_JAX_TASK = r"/job:\w{1,80}/replica:\d{1,9}/task:"
_POD_ROW = r"(?m)^(?:[\w-]+ +)?(?P<pod>[a-z0-9][\w.-]*) +\d+/\d+ +"
_POD_AGE = rf" +\d+(?: \([^)\n]*\))? +\w+(?: +(?:<none>|[\d.:a-f]{{7,40}}) +{_HOST})?"


@dataclass(frozen=True, slots=True)
class LauncherForm:
    """One form of a report.

    Attributes
    ----------
    hint : str
        Text without which no line has this form.
    expression : re.Pattern
        Named groups are fields of `LaunchReport`, and forms of the exit (`code`, `status`,
        `signal`, `word`), lists (`tasks`, `jax_tasks`, `hosts`, `nodes`,
        `codes` of tasks from 0) and `root`, a heading.
    is_block : bool
        The report spans lines.
    is_first : bool
        The launcher says that this process failed first.
    by_launcher : bool
        The launcher ends the process itself.
    is_described : bool
        Pod and node are named further up, as in `kubectl describe pod`.
    """

    hint: str
    expression: re.Pattern[str]
    is_block: bool = False
    is_first: bool = False
    by_launcher: bool = False
    is_described: bool = False


def _form(hint: str, expression: str, *flags: str) -> LauncherForm:
    return LauncherForm(hint, re.compile(expression, re.ASCII), **dict.fromkeys(flags, True))


_TORCHRUN = (
    _form(
        "exitcode  :",
        rf"(?P<root>Root Cause \(first{_NEXT_LINE}\[\d+\]:{_NEXT_LINE})?"
        rf"(?:time +: (?P<time>\S+){_NEXT_LINE})?(?:host +: {_HOST}{_NEXT_LINE})?"
        rf"rank +: (?P<rank>\d+) \(local_rank: (?P<local_rank>\d+)\){_NEXT_LINE}"
        r"exitcode +: (?P<code>-?\d+) \(pid: (?P<pid>\d+)\)",
        "is_block",
    ),
    _form("exitcode:", rf"{_CODE}\)?,?{_WRAP}{_LOCAL}(?:{_PID})?", "is_block"),
    _form("exitcode:", rf"{_CODE}\)?{_PID},?{_WRAP}{_LOCAL}", "is_block"),
    _form("exitcode:", rf"{_LOCAL}(?:{_PID})?,?{_WRAP}(?:failed)?{_WRAP}\(?{_CODE}", "is_block"),
    _form(
        "closing signal SIG",
        r"Sending process (?P<pid>\d+) closing signal (?P<word>SIG[A-Z]+)",
        "by_launcher",
    ),
    _form(
        "forcefully exit",
        r"shutdown process (?P<pid>\d+) .{0,40}forcefully exit\w* via (?P<word>SIG[A-Z]+)",
        "by_launcher",
    ),
)
_PYTHON = (  # torch.multiprocessing.spawn, accelerate, DeepSpeed, composer, Lightning
    _form(
        " terminated with ",
        r"\bprocess (?P<local_rank>\d{1,3}) terminated with (?:signal (?P<word>SIG[A-Z]+)"
        r"|exit code (?P<code>\d+)|the following error)",
    ),
    _form("died with <Signals.", r"ommand .*python.* died with <Signals\.\w+: (?P<signal>\d+)>"),
    _form("non-zero exit status", r"ommand .*python.* non-zero exit status (?P<code>\d+)"),
    _form("sigkill_handler] Killing", r"Killing subprocess (?P<pid>\d+)", "by_launcher"),
    _form(  # the command is that of the process that was started last
        "exits with return code", r"exits with return code = (?P<code>-?\d+)"
    ),
    _form(  # of the launcher of a machine, which pdsh started
        ": ssh exited with", rf"pdsh@[\w.-]+: {_HOST}: ssh exited with exit code (?P<code>[1-9]\d*)"
    ),
    _form(
        "crashed with exit code", r"[Rr]ank (?P<rank>\d+) crashed with exit code (?P<code>-?\d+)"
    ),
    _form(
        "exited with code",
        r"[Rr]ank (?P<rank>\d+) \(PID (?P<pid>\d+)\) exited with code (?P<code>-?\d+)",
    ),
    _form(
        "Child process with PID",
        r"Child process with PID (?P<pid>\d+) terminated with code (?P<code>-?\d+)",
    ),
)
_SLURM = (
    _form(
        ": task",
        r"error: (?P<hosts>[^\s:]+): tasks? (?P<tasks>\d[\d,-]*): "
        rf"(?:{_WORD}|Exited with exit code (?P<code>\d+))",
    ),
    _form("Node failure on", r"error: Node failure on (?P<nodes>[\w.,\[\]-]+)"),
    _form("oom_kill event", r"Detected \d+ (?P<word>oom_kill) event"),
    _form("oom-kill event", r"Detected \d+ (?P<word>oom-kill) event"),
)
_LISTED = (
    _form("eturn code list", r"eturn code list: \[(?P<codes>-?\d+(?:, -?\d+)+)\]"),
    _form("xit codes", r"\b[Ee]xit codes(?: of \w+)?: ?\[(?P<codes>-?\d+(?:, ?-?\d+)+)\]"),
)
_MPI = (
    _form(
        "noticed that process rank",
        r"noticed that process rank (?P<rank>\d+) with PID (?P<pid>\d+) on node "
        rf"{_HOST}\s+exited\s+on\s+signal (?P<signal>\d+)",
        *("is_block", "is_first"),
    ),
    _form(
        "Process name:",
        rf"Process name: (?:\[[^\n]*,)?(?P<rank>\d+)\]?(?!\S){_NEXT_LINE}"
        r"Exit code: +(?P<code>-?\d+)",
        *("is_block", "is_first"),
    ),
    _form(
        "RUNNING AT",
        rf"(?:RANK (?P<rank>\d+) )?PID (?P<pid>\d+) RUNNING AT {_HOST}{_NEXT_LINE}"
        r"(?:EXIT CODE: (?P<status>\d+)|KILLED BY SIGNAL: (?P<signal>\d+))",
        "is_block",
    ),
    _form(
        "MPI_ABORT was invoked",
        r"MPI_ABORT was invoked on rank (?P<rank>\d+) in communicator"
        r"(?:[^\n]*\n)?[^\n]*?with errorcode (?P<code>\d+)",
        "is_block",
    ),
    _form("MPI_Abort(", r"MPI_Abort\([^,\n]+, (?P<code>\d+)\) - process (?P<rank>\d+)"),
    _form(
        "first noticed rank",
        r"first noticed rank (?P<rank>\d+)\) terminated with signal (?P<signal>\d+)",
        "is_first",
    ),
    _form(
        "died from signal", rf"{_NUMBERED_HOST}rank (?P<rank>\d+) died from signal (?P<signal>\d+)"
    ),
    _form(
        "exited with code", rf"{_NUMBERED_HOST}rank (?P<rank>\d+) exited with code (?P<code>\d+)"
    ),
    _form(
        "] Signal: ", r"\[(?P<host>[\w.-]+):(?P<pid>\d+)\] Signal: [A-Z][\w ]+ \((?P<signal>\d+)\)"
    ),
    _form("failure of Process", r"workers after failure of Process (?P<rank>\d+)", "is_first"),
    _form(
        "Process name:",
        rf"Process name: (?P<host>[\w.-]+)\[(?P<local_rank>\d+)\]{_NEXT_LINE}"
        r"Exit code: +(?P<code>-?\d+)",
        *("is_block", "is_first"),
    ),
    _form(  # Horovod numbers processes by rank
        "exit with status code", r"Process (?P<rank>\d+) exit with status code (?P<code>-?\d+)"
    ),
)
_RAY = (
    _form(
        "Worker exit type",
        rf"Worker IP address: {_ADDRESS} Worker port: \d+ Worker PID: (?P<pid>\d+)"
        r" Worker exit type: (?:SYSTEM_ERROR|NODE_OUT_OF_MEMORY)"
        r"(?: Worker exit detail: Worker exits with an exit code (?P<code>\d+))?",
    ),
    _form(
        "actor died unexpectedly",
        rf"actor died unexpectedly {_NEXT_LINE}class_name: [^\n]*\n{_FIELD}actor_id: [^\n]*\n)?"
        rf"{_FIELD}pid: (?P<pid>\d+)[^\n]*\n)?"
        rf"{_FIELD}name: (?:[^\n]*_\d+:(?P<local_rank>\d+)|[^\n]*)\n)?"
        rf"{_FIELD}namespace: [^\n]*\n)?{_FIELD}ip: {_ADDRESS})?",
        "is_block",
    ),
    _form(
        "memory pressure",
        r"[1-9]\d* Workers? .{0,40}killed (?P<word>due to memory pressure)"
        rf".{{0,160}} IP: {_ADDRESS}",
    ),
    _form("died unexpectedly", r"Worker proc \w+-(?P<rank>\d+) died unexpectedly", "is_first"),
    _form(
        "marked dead because",
        rf"node with node id: \S+ and (?:address|ip): {_HOST} .{{0,200}}marked dead because",
    ),
)
_KUBERNETES = (
    _form(
        "Exit Code:",
        r"State: +Terminated\s+(?:Reason: +\w+\s+)?(?:Message: [^\n]*\s+)?"
        r"Exit Code: +(?P<code>[1-9]\d*)(?:\s+Signal: +\d+)?(?:\s+Started: [^\n]*)?"
        r"(?:\s+Finished: +(?P<date>[^\n]+))?",
        *("is_block", "is_described"),
    ),
    _form("OOMKilled", rf"{_POD_ROW}(?P<word>OOMKilled){_POD_AGE}"),
    _form("   Error   ", rf"{_POD_ROW}Error{_POD_AGE}"),
    _form("CrashLoopBackOff", rf"{_POD_ROW}CrashLoopBackOff{_POD_AGE}"),
    _form(
        "exited with code",
        r"Pod: (?:[\w-]+[./])?(?P<pod>[\w-]+) exited with code:? (?P<code>\d+)",
    ),
)
_DLROVER = (
    _form(
        "has not sent a heartbeat",
        r"node \d+-(?P<pod>[a-z][\w.-]*) has not sent a heartbeat for over",
    ),
)
_JAX = (
    _form("heartbeat timeout", rf"Task {_JAX_TASK}(?P<jax_tasks>\d+) heartbeat timeout"),
    _form(
        "timed out task names:",
        rf"task names:(?P<jax_tasks>(?:{_NEXT_LINE}{_JAX_TASK}\d+)+)",
        "is_block",
    ),
    _form(
        "tasks are unhealthy",
        rf"unhealthy(?P<jax_tasks>(?:{_NEXT_LINE}{_JAX_TASK}\d+)+)",
        "is_block",
    ),
)
_SHELL = (_form(": line ", rf": line \d+: +(?P<pid>\d+) {_WORD}"),)

LAUNCHER_FORMS: Final = (
    *(*_TORCHRUN, *_PYTHON, *_SLURM, *_MPI),
    *(*_LISTED, *_RAY, *_KUBERNETES, *_DLROVER, *_JAX, *_SHELL),
)
