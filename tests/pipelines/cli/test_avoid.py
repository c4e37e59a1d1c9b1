from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from forewarn.features.errors import InputError
from forewarn.pipelines.cli.avoid import add_avoid
from forewarn.pipelines.cli.options import Parser

Run = Callable[..., int]
MACHINES = ["node-07", "node-01", "node-07", "node-02", None, "node-03"]


@pytest.fixture
def avoid(tmp_path: Path) -> Run:
    """Return `avoid(*options)`: runs the command on lists of two days."""
    write_list(tmp_path, "2025-03-01", ["node-09"])
    write_list(tmp_path, "2025-03-02", MACHINES)

    def run(*options: str) -> int:
        parser = Parser(prog="forewarn")
        add_avoid(parser.add_subparsers(parser_class=Parser))
        args = parser.parse_args(["avoid", "--at-risk", str(tmp_path), *options])
        return int(args.run(args))

    return run


def write_list(lists: Path, day: str, machines: list[str | None]) -> None:
    folder = lists / f"date={day}"
    folder.mkdir()
    end = pd.Timestamp(day, tz="UTC")
    n = len(machines)
    columns = {
        "gpu_serial": [f"S{number}" for number in range(n)],
        "machine_id": machines,
        "flagged": [True] * (n - 1) + [n == 1],
        "window_end": [end] * n,
        "valid_until": [end + pd.Timedelta(hours=30)] * n,
    }
    pd.DataFrame(columns).to_parquet(folder / "at_risk.parquet")


def test_prints_scheduler_option(avoid: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert avoid("--at", "2025-03-02T01:00:00Z") == 0
    assert capsys.readouterr().out == "--exclude=node-[01-02,07]\n"
    assert avoid("--at", "2025-03-02T01:00:00Z", "--most", "1") == 0
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == ("--exclude=node-07\n", "2 more machines are at risk\n")


def test_list_is_valid_at_its_time(avoid: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert avoid("--at", "2025-03-01T23:00:00Z", "--json") == 0
    assert json.loads(capsys.readouterr().out) == {
        "at": "2025-03-01T23:00:00Z",
        "list": "2025-03-01",
        "valid_until": "2025-03-02T06:00:00Z",
        "machines": ["node-09"],
        "hostlist": "node-09",
        "beyond": 0,
    }


@pytest.mark.parametrize("options", [("--at", "2025-03-03T06:00:00Z"), ()])
def test_stale_list_is_an_error(
    avoid: Run, capsys: pytest.CaptureFixture[str], options: tuple[str, ...]
) -> None:
    with pytest.raises(InputError, match=r"no list is valid at .* the newest is from 2025-03-02"):
        avoid(*options)
    assert capsys.readouterr().out == ""


def test_name_cannot_become_an_option(
    avoid: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_list(tmp_path, "2025-03-04", ["n1 --wrap=reboot", "n2", None])
    assert avoid("--at", "2025-03-04T01:00:00Z") == 0
    printed = capsys.readouterr()
    assert printed.out == "--exclude=n2\n"
    assert printed.err == "ignored: 1 invalid names such as 'n1 --wrap=reboot'\n"


def test_no_flagged_machine_prints_nothing(
    avoid: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_list(tmp_path, "2025-03-04", [None, "n2"])
    assert avoid("--at", "2025-03-04T01:00:00Z") == 0
    assert capsys.readouterr().out == ""
