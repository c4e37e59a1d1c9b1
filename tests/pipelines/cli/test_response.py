"""`forewarn policy` from the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from forewarn.pipelines.cli.main import main


@pytest.fixture
def site(tmp_path: Path) -> str:
    path = tmp_path / "site.toml"
    path.write_text('[xids.74]\nmode = "now"\n', encoding="utf-8")
    return str(path)


def test_diff_prints_one_line_per_change(site: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["policy", "diff", "default", site]) == 0
    line = "xid 74 (NVLink error): step: check in mode finish -> check in mode now\n"
    assert capsys.readouterr() == (line, "")
    assert main(["policy", "diff", site, "default", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "names": ["xid 74 (NVLink error)"],
        "key": "step",
        "before": "check in mode now",
        "after": "check in mode finish",
    }


def test_diff_of_equal_policies_is_empty(site: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["policy", "diff", site, site]) == 0
    assert capsys.readouterr() == ("", "")


def test_diff_of_invalid_file_exits_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["policy", "diff", "default", str(tmp_path / "none.toml")]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err == (
        f"forewarn: error: {tmp_path}/none.toml: cannot be read (No such file or directory).\n"
    )
