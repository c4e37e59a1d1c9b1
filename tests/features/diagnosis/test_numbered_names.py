"""Names of files as people and programs choose them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from forewarn.features.diagnosis.numbered_names import ranks_of_names

FORMS = (
    "_dump_{rank}",
    "trace_rank_{rank}_{date}",
    "rank{rank}.pkl",
    "nccl_trace_rank_{rank}",
    "{rank}.json",
    "flight/{date}/dump_{rank}.{date}.json",
    "node-7_dump_{rank}",
    "job812345_r{rank}_p{pid}",
    "rank_{rank}/dump_{date}.pkl",
)


@given(
    form=st.sampled_from(FORMS),
    ranks=st.lists(st.integers(0, 2000), min_size=2, max_size=30, unique=True),
    first_pid=st.integers(3000, 90_000),
)
def test_rank_is_number_that_differs(form: str, ranks: list[int], first_pid: int) -> None:
    names = {
        form.format(rank=rank, date=20260304, pid=first_pid + number): rank
        for number, rank in enumerate(ranks)
    }
    assert ranks_of_names(list(names)) == names


def test_only_ranks_of_job_count() -> None:
    names = ["a_1_7", "a_0_9"]
    assert ranks_of_names(names) == {"a_1_7": 1, "a_0_9": 0}
    assert ranks_of_names(names, range(7, 10)) == {"a_1_7": 7, "a_0_9": 9}


def test_dates_and_shared_numbers_are_no_rank() -> None:
    assert ranks_of_names(["dump_20260304"]) == {"dump_20260304": None}
    assert ranks_of_names(["a/d_0", "b/d_0", "a/d_1"]) == {"a/d_0": 0, "b/d_0": 0, "a/d_1": 1}
    assert ranks_of_names(["n1/d_0", "n2/d_0", "n1/d_1"]) == {
        "n1/d_0": None,
        "n2/d_0": None,
        "n1/d_1": 1,
    }
