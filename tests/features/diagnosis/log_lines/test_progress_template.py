from __future__ import annotations

import datetime as dt
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forewarn.features.diagnosis.log_lines.progress_lines import learn_progress
from forewarn.features.diagnosis.log_lines.progress_template import learn_template

CONSONANTS = "bdfgjklprvwz"
SEPARATORS = [" ", ": ", "=", " = ", " | ", ", ", " - ", "\t", " #", "/", " @"]
TIMES = ["", "%Y-%m-%d %H:%M:%S ", "[%Y-%m-%dT%H:%M:%SZ] ", "[%H:%M:%S] ", "%Y/%m/%d %H:%M:%S.123 "]
START = dt.datetime(2026, 3, 4, 12, 15, tzinfo=dt.UTC)
words = st.text(CONSONANTS, min_size=4, max_size=9).map(str.capitalize)


@st.composite
def trainers(draw: st.DrawFn) -> tuple[list[str], list[int]]:
    """Return the lines of an invented trainer, and the numbers that its progress lines show."""
    rng = random.Random(draw(st.integers(0, 2**32)))
    names = draw(st.lists(words, min_size=2, max_size=5, unique=True))
    kinds = draw(
        st.lists(st.sampled_from(["real", "constant", "share"]), min_size=len(names) - 1,
                 max_size=len(names) - 1).flatmap(lambda rest: st.permutations(["step", *rest]))
    )  # fmt: skip
    separators = [draw(st.sampled_from(SEPARATORS)) for _ in range(2 * len(names))]
    time, padding = draw(st.sampled_from(TIMES)), draw(st.sampled_from(["", "7"]))
    first, step = draw(st.integers(0, 5_000)), draw(st.sampled_from([1, 2, 10, 50, 500]))
    noise = draw(st.lists(words, min_size=3, max_size=6))
    numbers = [first + step * n for n in range(draw(st.integers(4, 40)))]
    lines = []
    for n, number in enumerate(numbers):
        values = {"step": f"{number:{padding}}", "real": f"{rng.random():.3f}", "constant": "64",
                  "share": f"{rng.randrange(100)}%"}  # fmt: skip
        pairs = zip(names, kinds, separators[::2], separators[1::2], strict=True)
        body = "".join(f"{name}{sep}{values[kind]}{end}" for name, kind, sep, end in pairs)
        lines.append((START + dt.timedelta(seconds=7 * n)).strftime(time) + body.rstrip())
        lines += [
            f"{rng.choice(noise)} {rng.choice(noise)} {rng.randrange(10**6)}"
            for _ in range(rng.randrange(3))
        ]
    return lines, numbers


@given(trainers())
def test_unknown_trainer_is_learned(trainer: tuple[list[str], list[int]]) -> None:
    lines, numbers = trainer
    text = "\n".join(["started", *lines, ""]).encode()
    form = learn_progress(text)
    first, last = form.search(text), form.last(text)
    assert form.name == "learned"
    assert first is not None
    assert last is not None
    assert (first.number, last.number) == (numbers[0], numbers[-1])


@pytest.mark.parametrize("batches", [5, 10, 100])
def test_new_epoch_starts_at_zero(batches: int) -> None:
    text = "".join(f"zorb {n % batches}/{batches} f=0.{n}\n" for n in range(100))
    form = learn_progress(text.encode())
    assert form.name == "learned"
    last = form.last(text.encode())
    assert last is not None
    assert last.number == 99 % batches


@pytest.mark.parametrize(
    "line",
    [
        "heartbeat {n}",
        "worker alive, beat {n}",
        "connect refused, attempt {n}",
        "retry {n} of 90 of the read",
        "waited {t} s for peers",
        "still waiting for rank 3 ({n} of 90)",
        "uptime {t}",
        "elapsed {t} s in the loop",
        "loop took {t} ms",
        "memory allocated {m} MB",
        "rss={m}",
        "read error {n} on shard 3",
        "loading part {n} of 90",
        "saving checkpoint number {n}",
        "node-3:77:99 [0] NCCL INFO Channel {n}/90 : 0 -> 1",
        "{e} the loop goes on",
        "[{e}.25] the loop goes on",
        "12:15:{s:02d} the loop goes on",
        "2026-03-04 12:15:{s:02d} the loop goes on",
        "gpu util {n}%",
        "[launch.py:253:main] process {n} spawned with command: ['-u', '--local_rank={n}']",
        "parameters on (tensor, pipeline) model parallel rank (0, {n}): 640",
        "built layer {n} of the model",
    ],
)
def test_other_counters_are_no_progress(line: str) -> None:
    text = "".join(
        line.format(n=n, t=30 * n, m=400 + 64 * n, s=n, e=1_772_626_500 + 10 * n) + "\n"
        for n in range(1, 50)
    )
    assert not learn_progress(text.encode()).is_known


@pytest.mark.parametrize(
    "numbers",
    [
        [1, 2, 3],  # too few
        [7] * 20,
        list(range(20, 0, -1)),
        [n**2 for n in range(20)],
        random.Random(7).sample(range(10_000), 40),
    ],
)
def test_uneven_numbers_are_no_progress(numbers: list[int]) -> None:
    text = "".join(f"zorb {n} done\n" for n in numbers)
    assert learn_template([text.encode()]) is None


def test_most_frequent_line_is_chosen() -> None:
    rounds = [f"zorb {n} f=0.5\n" + (f"grok {n // 5}\n" if n % 5 == 0 else "") for n in range(50)]
    expression = learn_template(["".join(rounds).encode()])
    assert expression is not None
    assert "zorb" in expression


def test_samples_are_compared_apart() -> None:
    parts = [b"".join(b"zorb %d f=0.5\n" % n for n in range(k, k + 3)) for k in (0, 700, 9_000)]
    assert learn_template(parts) is not None


@given(st.binary(max_size=300))
def test_arbitrary_bytes_do_not_raise(line: bytes) -> None:
    learn_template([b"".join(line + b" %d\n" % n for n in range(6))])
