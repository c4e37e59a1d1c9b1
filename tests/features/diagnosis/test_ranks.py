"""Table of ranks."""

from __future__ import annotations

import pytest

from forewarn.features.diagnosis.ranks import RanksError, parse_ranks

TABLE = "rank,machine,local_rank,tp,pp,dp\n" + "".join(
    f"{rank},m{rank // 4},{rank % 4},{rank % 2},0,{rank // 2}\n" for rank in range(8)
)


def test_machine_and_peers_of_rank() -> None:
    ranks = parse_ranks(TABLE, "ranks.csv")
    assert ranks.machine(5) == "m1"
    assert ranks.on("m1") == (4, 5, 6, 7)
    assert ranks.rank_at("m1", 1) == 5
    assert ranks.peers(5) == (1, 3, 7)


def test_few_data_copies_use_stage_peers() -> None:
    rows = "".join(f"{rank},m,{rank % 2},{rank // 4},0\n" for rank in range(8))
    ranks = parse_ranks("rank,machine,tp,pp,dp\n" + rows, "ranks.csv")
    assert ranks.peers(6) == (4, 5, 7)


def test_missing_coordinates_use_all_ranks_as_peers() -> None:
    assert parse_ranks("rank,machine\n2,a\n0,b\n1,c\n", "ranks.csv").peers(1) == (0, 2)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("machine\nm\n", "column `rank` is missing"),
        ("rank,machine\n", "contains no rank"),
        ("rank,machine\n0,a\n0,b\n", "rank 0 occurs twice"),
        ("rank,machine,local_rank\n0,a,1\n1,a,1\n", "machine and local_rank a/1 occurs twice"),
        ("rank,machine\n-1,a\n", "line 2: column `rank` is '-1'"),
        ("rank,machine\n1e3,a\n", "expected an integer"),
        ("rank,machine\n\N{SUPERSCRIPT TWO},a\n", "expected an integer"),
        ("rank,machine\n7\n", "column `machine` is empty"),
        ('rank,machine\n0,"' + "x" * 200_000 + '"\n', "is not a valid CSV table"),
    ],
)
def test_invalid_tables_raise_with_location(text: str, message: str) -> None:
    with pytest.raises(RanksError, match=message) as error:
        parse_ranks(text, "j/ranks.csv")
    assert str(error.value).startswith("j/ranks.csv")
