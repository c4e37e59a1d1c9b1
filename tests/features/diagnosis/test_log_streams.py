"""Logs of any form become streams by rank and machine."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forewarn.features.diagnosis.log_streams.file_numbers import file_number
from forewarn.features.diagnosis.log_streams.job_streams import JobStreams, read_streams
from forewarn.features.diagnosis.log_streams.line_prefixes import clean_text, learn_prefixes
from forewarn.features.diagnosis.ranks import parse_ranks

_LABELS: dict[str, Callable[[int], bytes]] = {
    "srun": lambda rank: b"%2d: " % rank,
    "mpirun": lambda rank: b"[1,%d]<stderr>:" % rank,
    "horovod": lambda rank: b"[%d]<stdout>:" % rank,
    "torchrun": lambda rank: b"[default%d]:" % rank,
    "pytorch": lambda rank: b"[rank%d]: " % rank,
    "torchrun and pytorch": lambda rank: b"[default%d]:[rank%d]: " % (rank, rank),
    "unknown": lambda rank: b"<gpu %d> " % rank,
}


def _lines(ranks: int, count: int = 8) -> list[tuple[int, bytes]]:
    return [
        (rank, b"2026-05-06 07:08:%02d - INFO - step %d of rank" % (step, step))
        for step in range(count)
        for rank in range(ranks)
    ]


def _texts(job: JobStreams) -> dict[int | None, bytes]:
    texts: dict[int | None, bytes] = {}
    for stream in job.streams:
        texts[stream.rank] = texts.get(stream.rank, b"") + stream.text
    return texts


def _why(job: JobStreams, name: str) -> str:
    return "; ".join(next(r.why for r in job.readings if r.name == name))


@pytest.mark.parametrize("form", _LABELS)
@given(ranks=st.integers(2, 24), outer=st.sampled_from([b"", b"2026-05-06T07:08:09.123456789Z "]))
def test_console_is_divided_by_its_prefix(form: str, ranks: int, outer: bytes) -> None:
    label = _LABELS[form]
    lines = _lines(ranks)
    text = b"".join(outer + label(rank) + line + b"\n" for rank, line in lines)
    job = read_streams([("train_20260506-070809.log", text)])
    assert job.ranks == tuple(range(ranks))
    for stream in job.streams:
        assert stream.text.split(b"\n")[:-1] == [ln for rank, ln in lines if rank == stream.rank]


@given(number=st.integers(10, 10**9))
def test_name_of_job_is_no_rank(number: int) -> None:
    name = f"logs/slurm-{number}.out"
    job = read_streams([(name, b"step 1\nstep 2\n")])
    assert job.ranks == ()
    assert "no rank" in _why(job, name)


@pytest.mark.parametrize(
    "name", ["node-3.log", "node3.log", "train_20260304.log", "job-7.out", "3.log", "worker-1.log"]
)
def test_lone_number_is_no_rank(name: str) -> None:
    assert read_streams([(name, b"step 1\nstep 2\n")]).ranks == ()


def test_numbers_from_zero_are_ranks() -> None:
    job = read_streams([(f"logs/{n}.log", b"step 1\n") for n in range(4)])
    assert job.ranks == (0, 1, 2, 3)


def test_name_against_text_is_ignored() -> None:
    files = [
        (f"llm-{n}.log", b"".join(b"[rank%d]: step\n" % (8 * n + r) for r in range(8)))
        for n in range(2)
    ]
    job = read_streams([*files, ("llm-2.log", b"step\n")])
    assert job.ranks == tuple(range(16))
    assert "the text says other ranks" in _why(job, "llm-2.log")


def test_process_ids_are_no_ranks() -> None:
    text = b"rank 0 of 2 on vm\nrank 1 of 2 on vm\n12:00 [rank640] a\n12:00 [rank641] b\n"
    job = read_streams([("console.txt", text)])
    assert job.ranks == ()
    assert "[rank640], [rank641]" in _why(job, "console.txt")


def test_console_of_one_speaker_stays_a_console() -> None:
    text = b"[12:00] [Rank 0] step 1\nTraceback of another rank\n[12:01] [Rank 0] step 2\n"
    texts = _texts(read_streams([("deepspeed.log", text)]))
    assert texts[None] == b"Traceback of another rank\n"
    assert read_streams([("run/rank_0.log", text)]).streams[0].text == text


def test_lines_of_nccl_follow_their_process() -> None:
    first = b"n1:70:71 [0] NCCL INFO comm 0x1 rank 0 nranks 2 cudaDev 0\n"
    second = b"n1:80:81 [1] NCCL INFO comm 0x1 rank 1 nranks 2 cudaDev 1\n"
    lost = b"n1:80:99 [1] NCCL WARN NET/IB : link lost\n"
    texts = _texts(read_streams([("console.txt", b"start\n" + first + second + lost)]))
    assert texts == {None: b"start\n", 0: first, 1: second + lost}


@pytest.mark.parametrize("name", ["node-0.log", "llm-worker-0.log"])
@pytest.mark.parametrize("speech", [b"[rank0]: step 1\n", b"[12:00] [Rank 0] step 1\n"])
def test_first_machine_is_not_rank_zero(name: str, speech: bytes) -> None:
    other = (name.replace("0", "1"), speech.replace(b"0]", b"8]"))
    job = read_streams([(name, speech + b"Traceback of whom\n"), other])
    assert _texts(job)[None] == b"Traceback of whom\n"


def test_rank_of_subgroup_is_no_rank() -> None:
    text = b"n%d:7:9 [0] NCCL INFO comm 0x1 rank 1 nranks 2 cudaDev 1\n"
    world = b"n%d:7:9 [0] NCCL INFO comm 0x2 rank %d nranks 4 cudaDev 1\n"
    job = read_streams([(f"{n}.txt", text % n + world % (n, rank)) for n, rank in ((8, 1), (9, 3))])
    assert job.ranks == (1, 3)
    assert job.machines == {1: "n8", 3: "n9"}


def test_local_ranks_need_the_machines_first() -> None:
    files = [(f"console-{name}.log", b"[default0]:a\n[default1]:b\n") for name in ("x", "y")]
    job = read_streams(files)
    assert job.ranks == ()
    assert "is not stated" in _why(job, "console-x.log")
    labelled = files[1][1] + b"[default1]:[rank3]: error\n"
    assert read_streams([files[0], ("console-y.log", labelled)]).ranks == (2, 3)


def test_same_local_rank_of_two_machines_stays_apart() -> None:
    text = b"[default0]:[rank0]: a\n[default0]:[rank2]: b\n[default0]: whose\n"
    texts = _texts(read_streams([("slurm-99999.out", text)]))
    assert texts[0] == b"a\n"
    assert texts[2] == b"b\n"
    assert texts[None] == b"whose\n"


def test_torchrun_tree_gives_ranks_by_table() -> None:
    table = parse_ranks("rank,machine,local_rank\n0,a,0\n1,a,1\n2,b,0\n3,b,1\n", "ranks.csv")
    files = [
        (f"logs/{machine}/attempt_0/{local}/stderr.log", b"step\n")
        for machine in "ab"
        for local in (0, 1)
    ]
    assert read_streams(files).ranks == ()
    assert read_streams(files, table).ranks == (0, 1, 2, 3)


def test_rank_beyond_the_job_is_ignored() -> None:
    table = parse_ranks("rank,machine\n0,a\n1,a\n", "ranks.csv")
    job = read_streams([("x.log", b"[rank0]: a\n[rank7]: b\n")], table)
    assert job.ranks == (0,)
    assert "the job has 2 ranks" in _why(job, "x.log")


def test_ranks_of_several_models_in_ray_are_ignored() -> None:
    text = b"".join(
        b"(Actor pid=%d, ip=10.1.1.%d) [rank%d]: lost\n" % (pid, pid, rank)
        for pid, rank in ((5, 0), (6, 1), (7, 0), (8, 1))
    )
    job = read_streams([("driver.log", b"(raylet, ip=10.1.1.5) A worker died\n" + text)])
    assert job.ranks == ()
    assert "ranks 0, 1 of several process groups" in _why(job, "driver.log")
    assert b"".join(stream.text for stream in job.streams).startswith(b"A worker died\n")


def test_same_numbers_in_two_folders_are_no_ranks() -> None:
    files = [(f"n{m}/log/workerlog.{n}", b"step\n") for m in range(2) for n in range(4)]
    job = read_streams(files)
    assert job.ranks == ()
    assert "same numbers" in _why(job, files[0][0])
    assert read_streams(files[:4]).ranks == (0, 1, 2, 3)


def test_launchers_place_ranks() -> None:
    deepspeed = b"global_rank_mapping=defaultdict(<class 'list'>, {'a-1': [0, 1], 'a-2': [2]})\n"
    job = read_streams([("x.log", deepspeed + b"dist_world_size=3\n")])
    assert (job.machines, job.world) == ({0: "a-1", 1: "a-1", 2: "a-2"}, 3)
    event = (
        b'{"metadata": {"global_rank": 5, "group_rank": 1, "role": "default", '
        b'"hostname": "h2", "metadata": "{\\"local_rank\\": [1]}"}}\n'
    )
    assert read_streams([("x.log", event)]).machines == {5: "h2"}


def test_warning_of_nccl_names_its_machine() -> None:
    text = (
        b"p-0:27:27 [0] misc/wrap.cu:63 NCCL WARN no library\n"
        b"[2026-01-02 03:04:05] p-0:27:29 [0] net.cc:12 NCCL WARN lost\n"
        b"p-0:27:27 [0] NCCL INFO NET/Socket : Using [0]lo:127.0.0.1<0> [1]eth0:10.8.4.2<0>\n"
    )
    job = read_streams([("x.log", text)])
    assert job.streams[0].machine == "p-0"
    assert job.addresses == {"10.8.4.2": "p-0"}


def test_pdsh_prefix_may_be_an_address() -> None:
    text = b"".join(b"10.3.3.%d: step %d\n" % (100 + n % 2, n) for n in range(8))
    assert {stream.machine for stream in read_streams([("x.log", text)]).streams} == {
        "10.3.3.100",
        "10.3.3.101",
    }


def test_container_prefixes_with_bars_are_removed() -> None:
    cloud = b"".join(b"  | 2026-05-06T07:08:09.1Z | [rank%d]: lost\n" % n for n in range(4))
    assert read_streams([("x.log", cloud)]).ranks == (0, 1, 2, 3)
    batch = b"14.worker.1  | [2026-05-06T07:08:09Z] [2026-05-06 07:08:09.2: W a.cc:5] stalled\n" * 5
    stream = read_streams([("x.log", batch)]).streams[0]
    assert stream.text == b"[2026-05-06 07:08:09.2: W a.cc:5] stalled\n" * 5


def test_table_of_nccl_tests_places_ranks() -> None:
    text = b"#  Rank  0 Group  0 Pid 31 on   head-1 device  0 [0x01] GPU\n"
    assert read_streams([("x.out", text)]).machines == {0: "head-1"}


def test_address_of_adapter_is_mapped_to_machine() -> None:
    text = b"q9:95:99 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [RO]; OOB ib0:172.4.2.9<0>\n"
    assert read_streams([("x.out", text)]).addresses == {"172.4.2.9": "q9"}


def test_address_is_mapped_to_machine() -> None:
    text = b"n7:3:3 [0] NCCL INFO Bootstrap: Using eth0:10.1.2.3<0>\n"
    ray = b"(Trainer pid=5, ip=10.1.2.3) [rank4]: lost\n"
    job = read_streams([("a.log", text), ("driver.log", ray)])
    assert job.addresses == {"10.1.2.3": "n7"}
    assert job.machines == {4: "n7"}


def test_labels_of_many_ranks_are_divided() -> None:
    text = b"".join(b"%4d: step %d\n" % (rank, step) for step in range(9) for rank in range(3000))
    assert read_streams([("slurm-77.out", text)]).ranks == tuple(range(3000))


def test_counter_is_no_prefix() -> None:
    text = b"".join(b"%d: line\n" % n for n in range(100, 140))
    assert learn_prefixes(text) == ()
    assert learn_prefixes(b"".join(b"step %d] loss\n" % n for n in range(40))) == ()


@given(st.lists(st.tuples(st.text(max_size=12), st.binary(max_size=200)), max_size=6))
def test_any_bytes_are_read(files: list[tuple[str, bytes]]) -> None:
    job = read_streams(files)
    assert {reading.name for reading in job.readings} == {name for name, _ in files}


def test_last_state_of_progress_bar_stays() -> None:
    assert clean_text(b" 1%\r 2%\r\n\x1b[31mdone\x1b[0m\n") == b" 2%\ndone\n"


def test_dump_is_listed_with_reason() -> None:
    job = read_streams([("a.pkl", b"x"), ("b.log", b"\0\0")])
    assert [reading.why for reading in job.readings] == [
        ("it is a table or a dump",),
        ("binary file",),
    ]


def test_date_in_name_is_no_rank() -> None:
    assert file_number("train_20260304-120000.log").kind == "none"
