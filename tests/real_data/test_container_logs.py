"""Jobs as users had them, in the envelopes of Docker and Kubernetes: the same verdicts."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from forewarn.features.diagnosis.log_lines.log_timestamp import parse_line_timestamp
from forewarn.features.time_units import SECOND
from forewarn.pipelines.diagnosis.loaded_job import read_job
from forewarn.pipelines.runtime.timestamps import format_iso

CASES = Path(__file__).resolve().parents[3] / "shared" / "data" / "job_cases"
NAMES = (
    "aborted-cascade",
    "connect-to-one-node",
    "cuda-oom-one",
    "deepspeed-minus9-console",
    "exception-then-silent",
    "harmless-ipv6-line",
    "heartbeat-eight-minutes-later",
    "horovod-rank-logs",
    "kubectl-timestamps",
    "launcher-hung-up",
    "mpirun-signal9",
    "preempted-launcher-log",
    "raw-kubectl-logs-pods",
    "raw-slurm-out",
)
Envelope = Callable[[str, str, bool], str]


def cri(time: str, text: str, is_last: bool) -> str:
    return f"{time} stderr {'F' if is_last else 'P'} {text}"


def docker(time: str, text: str, is_last: bool) -> str:
    value = {"log": text + "\n" * is_last, "stream": "stderr", "time": time}
    return json.dumps(value, separators=(",", ":"))


def dated(lines: list[str], last: int) -> Iterator[tuple[str, str]]:
    """Yield each line with the time at which the runtime read it."""
    times = [parse_line_timestamp(line.encode(), last) for line in lines]
    time = next((each for each in times if each is not None), last)
    for line, own in zip(lines, times, strict=True):
        time = time if own is None else own
        yield f"{format_iso(time // SECOND * SECOND)[:19]}.{time % SECOND:09}Z", line


def wrap(text: str, envelope: Envelope, last: int, rng: random.Random) -> str:
    """Put each line into one or more envelopes."""
    wrapped = []
    for time, line in dated(text.removesuffix("\n").split("\n"), last):
        cuts = sorted(rng.sample(range(1, len(line)), rng.randrange(3))) if len(line) > 3 else []
        ends = [*cuts, len(line)]
        for start, end in zip([0, *cuts], ends, strict=True):
            wrapped.append(envelope(time, line[start:end], end == ends[-1]))
    return "\n".join(wrapped) + "\n"


@pytest.mark.parametrize("envelope", [cri, docker])
@pytest.mark.parametrize("name", NAMES)
def test_envelopes_do_not_change_the_verdict(name: str, envelope: Envelope, tmp_path: Path) -> None:
    folder, rng = tmp_path / name, random.Random(name)
    shutil.copytree(CASES / name, folder)
    job = read_job(folder)
    last = max(part.last for part in job.parts.values() if part.last is not None)
    for log in (folder / "logs").rglob("*.*"):
        log.write_text(wrap(log.read_text(), envelope, last, rng))
    plain, wrapped = job.judge()[1], read_job(folder).judge()[1]
    assert wrapped.kind == plain.kind
    assert {(each.rank, each.machine) for each in wrapped.culprits} == {
        (each.rank, each.machine) for each in plain.culprits
    }
