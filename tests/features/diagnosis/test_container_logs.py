"""Lines and names of logs of Docker and Kubernetes, against envelopes of random splits."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forewarn.features.diagnosis.file_content import file_content
from forewarn.features.diagnosis.log_streams.container_files import container_file, continued_file
from forewarn.features.diagnosis.log_streams.container_logs import unwrap_container_log
from forewarn.features.diagnosis.log_streams.file_numbers import file_number, machine_of_path
from forewarn.features.diagnosis.log_streams.job_streams import read_streams
from forewarn.features.diagnosis.log_streams.line_sources import split_by_writer

UID = "01234567-89ab-cdef-0123-456789abcde{}"
TIME = "2026-01-01T00:00:{:02}.{:09}Z"
LINES = st.lists(
    st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=30), min_size=1, max_size=8
)
STREAMS = st.sampled_from(["stdout", "stderr"])


def pieces(line: str, cuts: Sequence[int]) -> list[str]:
    ends = sorted({cut for cut in cuts if 0 < cut < len(line)})
    return [line[start:end] for start, end in zip([0, *ends], [*ends, len(line)], strict=True)]


def cri(line: str, cuts: Sequence[int], stream: str, second: int) -> list[bytes]:
    parts = pieces(line, cuts)
    tags = ["P"] * (len(parts) - 1) + ["F"]
    return [
        f"{TIME.format(second, number)} {stream} {tag} {part}".encode()
        for number, (tag, part) in enumerate(zip(tags, parts, strict=True))
    ]


def docker(line: str, cuts: Sequence[int], stream: str, second: int) -> list[bytes]:
    parts = pieces(line + "\n", cuts)
    return [
        json.dumps(
            {"log": part, "stream": stream, "time": TIME.format(second, number)},
            separators=(",", ":"),
            ensure_ascii=second % 2 == 0,
        ).encode()
        for number, part in enumerate(parts)
    ]


def mixed(groups: list[list[bytes]], order: Sequence[int]) -> bytes:
    """Interleave two streams, of which each keeps its order."""
    lines = []
    for choice in order:
        lines += [groups[choice].pop(0)] if groups[choice] else []
    return b"\n".join([*lines, *groups[0], *groups[1]]) + b"\n"


@given(
    st.data(), st.sampled_from([cri, docker]), LINES, LINES, st.lists(st.integers(0, 1), max_size=9)
)
def test_split_lines_of_streams_are_joined(
    data: st.DataObject, wrap: object, out: list[str], err: list[str], order: list[int]
) -> None:
    assert callable(wrap)
    cuts = st.lists(st.integers(1, 30), max_size=3)
    groups = [
        [piece for n, line in enumerate(lines) for piece in wrap(line, data.draw(cuts), name, n)]
        for name, lines in (("stdout", out), ("stderr", err))
    ]
    text = mixed(groups, order)
    stripped = [
        line.partition(b"Z ")[2].removeprefix(b"stdout F ").removeprefix(b"stderr F ")
        for line in unwrap_container_log(text).split(b"\n")[:-1]
    ]
    expected = sorted(line.encode() for line in [*out, *err] if line)
    assert sorted(line for line in stripped if line) == expected


@pytest.mark.parametrize("wrap", [cri, docker])
def test_progress_bar_keeps_its_time(wrap: object) -> None:
    assert callable(wrap)
    text = b"\n".join(
        [*wrap("  1%|#\r  2%|##", [5], "stderr", 1), *wrap("done", [], "stdout", 2), b""]
    )
    unwrapped = unwrap_container_log(text)
    assert unwrapped.startswith(TIME.format(1, 0).encode() + b" stderr F   2%|##\n")


def test_time_of_envelope_dates_undated_lines() -> None:
    lines = [*cri("step 1", [], "stdout", 1), *cri("lost", [], "stdout", 5)]
    _, (source,) = split_by_writer("a.log", b"\n".join(lines))
    first, last = source.text.splitlines()
    assert first == TIME.format(1, 0).encode() + b" step 1"
    assert last == TIME.format(5, 0).encode() + b" lost"


def test_lines_of_one_second_stay_together() -> None:
    lines = [line for text in ("Stalled ranks:", "6: [a]") for line in cri(text, [], "stderr", 1)]
    lines += [line for n in range(2, 9) for line in cri(f"step {n}", [], "stderr", n)]
    _, (source,) = split_by_writer("a.log", b"\n".join(lines))
    assert source.text.startswith(TIME.format(1, 0).encode() + b" Stalled ranks:\n6: [a]\n")


@pytest.mark.parametrize(
    "text",
    [
        b'{"log":"a\\n","stream":"stdout"}\n',
        b'{"log":' + b"[" * 100_000 + b"\n",
        b'{"log":"a',
        b"2026-01-01T00:00:00Z stdout P a",
        b"",
        b"\n\n",
    ],
)
def test_broken_envelopes_are_kept(text: bytes) -> None:
    assert unwrap_container_log(text).replace(b" ", b"")[:5] == (
        b"2026-" if text.startswith(b"2026") else text[:5]
    )


def test_log_of_docker_is_no_dump() -> None:
    assert file_content(b'{"log":"collective_seq_id 3\\n","stream":"stdout"}') is None


@pytest.mark.parametrize(
    ("name", "pod"),
    [
        (f"logs/ml_llm-3_{UID.format(1)}/trainer/0.log", "llm-3"),
        (f"ml_llm-3_{UID.format(1)}/trainer/2.log.20260101-000000.gz", "llm-3"),
        (f"pods/ml_llm-3_{'0123456789abcdef' * 2}/trainer/0.log", "llm-3"),
        (f"containers/llm-3_ml_trainer-{'0123456789abcdef' * 4}.log", "llm-3"),
    ],
)
def test_pod_is_read_from_the_path(name: str, pod: str) -> None:
    container = container_file(name)
    assert container is not None
    assert (container.namespace, container.pod, container.container) == ("ml", pod, "trainer")
    number = file_number(name)
    assert (number.value, number.kind, number.family) == (3, "number", "trainer/ml_llm-#")
    assert machine_of_path(name, [pod]) == pod


def test_numbers_of_containers_are_no_ranks() -> None:
    assert file_number("0123456789abcdef" * 3 + "0" * 15 + "3-json.log").kind == "none"
    assert file_number(f"ml_web_{UID.format(1)}/trainer/0.log").kind == "none"
    assert container_file("ml_llm-3/trainer/0.log") is None


def pod_files(*, container: str, says_rank: bool) -> list[tuple[str, bytes]]:
    files = []
    for number in range(3):
        name = f"ml_llm-{number}_{UID.format(number)}/{container}/0.log"
        said = f"[rank{number}]: " if says_rank and number else ""
        lines = [line for n in range(5) for line in cri(f"{said}step {n}", [], "stderr", n)]
        files.append((name, b"\n".join(lines) + b"\n"))
    return files


def test_sidecars_have_no_rank() -> None:
    trainers, sidecars = (
        pod_files(container="trainer", says_rank=True),
        pod_files(container="proxy", says_rank=False),
    )
    job = read_streams([*trainers, *sidecars])
    ranks = {stream.name: stream.rank for stream in job.streams}
    assert [ranks[name] for name, _ in trainers] == [0, 1, 2]
    assert [ranks[name] for name, _ in sidecars] == [None, None, None]


def test_starts_of_a_container_are_no_ranks() -> None:
    files = [
        (f"trainer/{start}.log", b"\n".join(cri(f"step {n}", [], "stdout", n)[0] for n in range(5)))
        for start in range(2)
    ]
    job = read_streams(files)
    assert job.ranks == ()
    assert job.readings[0].why == ("its name: the number counts the starts of a container",)


def test_both_streams_have_one_reading() -> None:
    lines = [*cri("step 1", [], "stdout", 1), *cri("step 2", [], "stderr", 2)]
    job = read_streams([("0.log", b"\n".join(lines))])
    assert [stream.text.count(b"std") for stream in job.streams] == [0]
    assert job.readings[0].read_as == "a log with prefixes of a container runtime"


def test_rotated_file_is_the_start_of_its_log() -> None:
    first, rest = cri("[rank5]: one long line", [9], "stderr", 1)
    job = read_streams([("p/0.log.20260101-000000", first + b"\n"), ("p/0.log", rest)])
    assert [(stream.name, stream.rank) for stream in job.streams] == [("p/0.log", 5)]
    assert job.streams[0].text.endswith(b"one long line\n")
    assert next(reading.read_as for reading in job.readings) == "the start of p/0.log"
    assert continued_file("train.log.1") == "train.log.1"
