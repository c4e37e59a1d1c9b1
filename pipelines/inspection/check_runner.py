"""One check on this machine: what it needs, its run, and its outcomes."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from forewarn.features.inspection.check_table import CheckTable
from forewarn.features.inspection.check_values import (
    CheckOutcome,
    evaluate_run,
    evaluate_values,
    first_line,
    read_values,
)
from forewarn.pipelines.inspection.torch_measurements import MEASUREMENTS as TORCH_MEASUREMENTS
from forewarn.pipelines.runtime.bounded_program import ProgramRun, run_program

__all__ = ["CheckRun", "CheckRunner", "cpu_share", "evaluate_measurement", "torch_python"]

_MAX_OUTPUT_BYTES: Final = 4 << 20
_TERM_SECONDS: Final = 2.0
_MAX_FILE_BYTES: Final = 1 << 20
_MAX_FILES: Final = 4096
_CPU_SECONDS: Final = 0.3
_MAX_CPU_SHARE: Final = 0.2


@dataclass(frozen=True, slots=True)
class CheckRun:
    """The outcomes of one run of a check, at least one.

    Attributes
    ----------
    outcomes : list of CheckOutcome
    seconds : float
    versions : dict of str to str
        What the values depend on, apart from the machine.
    """

    outcomes: list[CheckOutcome]
    seconds: float
    versions: dict[str, str] = field(default_factory=dict)


def torch_python() -> str:
    """Return an interpreter that may have PyTorch: of the environment FOREWARN_TORCH, or ours."""
    if named := os.environ.get("FOREWARN_TORCH"):
        return str(Path(named, "bin", "python"))
    return sys.executable if find_spec("torch") else shutil.which("python3") or sys.executable


@dataclass(slots=True)
class CheckRunner:
    """Runs checks on this machine.

    Attributes
    ----------
    scratch : Path
        Folder for files of checks.
    variables : mapping of str to str
        Environment of programs, in addition to ours.
    is_busy : bool
        Whether a job uses a GPU: checks that need an idle machine do not run.
    root : Path
        Folder that contains `proc` and `sys`.
    outputs : dict
        Runs of commands that several checks share, such as a query of all GPUs.
    """

    scratch: Path
    variables: Mapping[str, str] = field(default_factory=dict)
    is_busy: bool = False
    root: Path = Path("/")
    outputs: dict[tuple[str, ...], ProgramRun] = field(default_factory=dict)

    def missing(self, check: CheckTable) -> str:
        """Return what a check lacks on this machine; empty if it can run."""
        for program in (*check.programs, *check.command[:1]):
            if shutil.which(program) is None:
                return f"{program} is not installed"
        has_gpu = any((self.root / "proc/driver/nvidia/gpus").glob("*")) or any(
            shutil.which(tool) for tool in ("nvidia-smi", "amd-smi", "npu-smi")
        )
        reasons = {
            "gpu": "" if has_gpu else "the machine has no GPU",
            "root": "" if os.geteuid() == 0 else "it needs root",
            "idle": self._other_work() if "idle" in check.conditions else "",
            "pair": "it needs a pair of machines",
            "ring": "it needs several machines",
        }
        return next((reasons[name] for name in check.conditions if reasons[name]), "")

    def _other_work(self) -> str:
        """Return what makes the machine busy; speeds measured next to it would mean nothing."""
        if self.is_busy:
            return "a job uses a GPU"
        share = cpu_share(self.root)
        busy = f"other work uses {100.0 * share:.0f} % of the CPUs, expected an idle machine"
        return busy if share > _MAX_CPU_SHARE else ""

    def run(self, check: CheckTable, timeout: float) -> CheckRun:
        """Run a check once.

        Parameters
        ----------
        check : CheckTable
        timeout : float
            Seconds.
        """
        if reason := self.missing(check):
            return CheckRun([CheckOutcome("not_run", reason)], 0.0)
        started = time.monotonic()
        if check.value.file is not None or check.value.count is not None:
            outcomes = self._read_files(check)
            return CheckRun(outcomes, time.monotonic() - started)
        return self._run_program(check, timeout)

    def _run_program(self, check: CheckTable, timeout: float) -> CheckRun:
        command = self._command(check)
        try:
            run = self._output(command, timeout, is_shared=check.repeat == 1)
        except (OSError, ValueError) as error:
            return CheckRun([CheckOutcome("not_run", f"{command[0]} cannot be run: {error}")], 0.0)
        if run.code is None:
            reason = f"no result within {timeout:g} s"
            return CheckRun([CheckOutcome("timeout", reason)], run.seconds)
        text = run.output.decode(errors="replace")
        if check.value.builtin is None:
            return CheckRun(evaluate_run(check, run.code, text), run.seconds)
        outcomes, versions = evaluate_measurement(check, run.code, text)
        return CheckRun(outcomes, run.seconds, versions)

    def _output(self, command: Sequence[str], timeout: float, *, is_shared: bool) -> ProgramRun:
        """Run a program, or return its run of another check."""
        if is_shared and (known := self.outputs.get(tuple(command))) is not None:
            return replace(known, seconds=0.0)
        run = run_program(
            command,
            timeout,
            max_bytes=_MAX_OUTPUT_BYTES,
            term_seconds=_TERM_SECONDS,
            variables=self.variables,
        )
        if is_shared:
            self.outputs[tuple(command)] = run
        return run

    def _command(self, check: CheckTable) -> list[str]:
        command: Sequence[str] = check.command
        name, args = check.value.builtin, check.value.args
        if name in TORCH_MEASUREMENTS:
            script = Path(__file__).with_name("torch_measurements.py")
            command = (torch_python(), str(script), name, *args)
        elif name is not None:
            module = "forewarn.pipelines.inspection.host_measurements"
            command = (sys.executable, "-m", module, name, *args)
        return [part.replace("{scratch}", str(self.scratch)) for part in command]

    def _read_files(self, check: CheckTable) -> list[CheckOutcome]:
        value = check.value
        if value.count is not None:
            n = sum(1 for _ in self.root.glob(value.count.lstrip("/")))
            return evaluate_values(check, [(None, str(n))])
        values: list[tuple[str | None, str]] = []
        for slot, path in _slots(self.root, value.file or ""):
            try:
                with path.open(errors="replace") as file:
                    values += read_values(value, file.read(_MAX_FILE_BYTES), slot)
            except OSError:  # as the speed of a port that is down
                continue
        if not values:
            return [CheckOutcome("not_run", f"there is no {value.file}")]
        return evaluate_values(check, values)


def cpu_share(root: Path = Path("/")) -> float:
    """Return the share of the CPUs that was used for a short while; 0 where it is not known."""
    try:
        before = _cpu_times(root)
        time.sleep(_CPU_SECONDS)
        after = _cpu_times(root)
    except (OSError, ValueError):
        return 0.0
    idle, total = (new - old for new, old in zip(after, before, strict=True))
    return 1.0 - idle / total if total > 0 else 0.0


def _cpu_times(root: Path) -> tuple[int, int]:
    """Return the idle time and all time of the CPUs so far."""
    times = [int(word) for word in (root / "proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return sum(times[3:5]), sum(times)


def _slots(root: Path, pattern: str) -> Iterator[tuple[str | None, Path]]:
    """Yield the files of a pattern; `{slot}` names a part of the machine."""
    before, braces, after = pattern.lstrip("/").partition("{slot}")
    if not braces:
        yield from ((None, path) for path in sorted(root.glob(before))[:_MAX_FILES])
        return
    depth = len(root.parts) + before.count("/")
    name = re.compile(re.escape(before.rpartition("/")[2]) + "(.+)")
    for path in sorted(root.glob(f"{before}*{after}"))[:_MAX_FILES]:
        match = name.match(path.parts[depth])
        if match is not None:
            yield match[1], path


def evaluate_measurement(
    check: CheckTable, code: int, output: str
) -> tuple[list[CheckOutcome], dict[str, str]]:
    """Return the outcomes that a measurement of ours printed, and their versions.

    Parameters
    ----------
    check : CheckTable
    code : int
        Exit code.
    output : str
        The last line is JSON: a list of slots and values, or an object with the key `values`,
        `not_run` or `failed`.
    """
    result: Any = None
    lines = output.strip().splitlines()
    if code == 0 and lines:
        try:
            result = json.loads(lines[-1])
        except ValueError:
            result = None
    if isinstance(result, dict) and "not_run" in result:
        return [CheckOutcome("not_run", str(result["not_run"]))], {}
    if isinstance(result, dict) and "failed" in result:
        return [CheckOutcome("failed", str(result["failed"]))], {}
    versions = result.get("versions", {}) if isinstance(result, dict) else {}
    values = result.get("values") if isinstance(result, dict) else result
    if not isinstance(values, list):
        reason = first_line(lines[-1] if lines else "")
        return [CheckOutcome("blind", f"ended with exit code {code}: {reason}"[:500])], {}
    if not values:
        return [CheckOutcome("not_run", "the machine has no such part")], {}
    return evaluate_values(check, [(slot, text) for slot, text in values]), versions
