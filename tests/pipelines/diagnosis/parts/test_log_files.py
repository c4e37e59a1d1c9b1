"""Logs of a job's folder: compressed, rotated, of pods."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from forewarn.pipelines.diagnosis.loaded_job import read_job
from forewarn.pipelines.diagnosis.parts import log_files
from forewarn.pipelines.diagnosis.parts.log_files import read_bounded

UID = "01234567-89ab-cdef-0123-456789abcde{}"


def pod_lines(number: int, start: int, end: int) -> bytes:
    lines = (
        f"2026-11-22T10:{minute:02}:00.000000001Z stderr F step {minute} loss 1.0\n"
        for minute in range(start, end)
    )
    first = f"2026-11-22T09:59:00.000000001Z stderr F [rank{number}]: ready\n" if not start else ""
    return (first + "".join(lines)).encode()


def write_pods(folder: Path) -> None:
    for number in range(2):
        pod = folder / f"ml_llm-{number}_{UID.format(number)}" / "trainer"
        pod.mkdir(parents=True)
        early, later = pod_lines(number, 0, 10), pod_lines(number, 10, 20)
        (pod / "0.log.20261122-100900.gz").write_bytes(gzip.compress(early))
        (pod / "0.log.20261122-101900").write_bytes(later)
        (pod / "0.log").write_bytes(pod_lines(number, 20, 30 + number))


def test_rotated_logs_of_pods_are_one(tmp_path: Path) -> None:
    write_pods(tmp_path)
    job = read_job(tmp_path)
    ranks = {log.stream.rank for log in job.parts["logs"].logs}  # type: ignore[attr-defined]
    assert ranks == {0, 1}
    files = {file.name.partition("trainer/")[2]: file.read_as for file in job.files}
    current = f"ml_llm-1_{UID.format(1)}/trainer/0.log"
    assert files == {
        "0.log": "a log with prefixes of a container runtime, PyTorch",
        "0.log.20261122-101900": f"the start of {current}",
        "0.log.20261122-100900.gz": f"the start of {current}",
    }
    assert job.judge()[1].kind == "none"


def test_single_log_of_container_is_read(tmp_path: Path) -> None:
    path = tmp_path / "0.log"
    path.write_bytes(pod_lines(0, 0, 20))
    assert read_job(path).judge()[1].kind == "none"


def test_compressed_text_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_files, "_HEAD_BYTES", 100)
    monkeypatch.setattr(log_files, "_MAX_FILE_BYTES", 300)
    monkeypatch.setattr(log_files, "_MAX_UNPACKED_BYTES", 10_000)
    path = tmp_path / "a.log.gz"
    lines = [f"line {number}\n".encode() for number in range(100)]
    path.write_bytes(gzip.compress(b"".join(lines)))
    text, left_out = read_bounded(path, 1)
    assert text.startswith(lines[0])
    assert text.endswith(lines[-1])
    assert len(text) <= 300
    assert left_out
    path.write_bytes(gzip.compress(b"x\n" * 10**6))
    text, left_out = read_bounded(path, 1)
    assert len(text) <= 300
    assert left_out == "only its first 0 MiB were read"


@pytest.mark.parametrize(
    "data", [b"not packed\n", gzip.compress(b"step 1\n" * 1000, mtime=0)[:-20]]
)
def test_damaged_compressed_file_is_said(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "a.log.gz"
    path.write_bytes(data)
    assert read_bounded(path, 1)[1] == "it is damaged, or no gzip file"


def test_small_compressed_file_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "a.log.gz"
    path.write_bytes(gzip.compress(b"step 1\n"))
    assert read_bounded(path, 1) == (b"step 1\n", "")
