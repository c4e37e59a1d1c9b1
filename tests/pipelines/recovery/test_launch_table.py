"""The TOML of a job that `forewarn launch` starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from forewarn.pipelines.cli.main import main
from forewarn.pipelines.config.toml_tables import SettingsError
from forewarn.pipelines.recovery.launch_table import read_launch_table

VALID = {
    "hosts": '["n[1-5]"]',
    "nodes": "4",
    "processes": "8",
    "program": '["train.py"]',
    "folder": '"job"',
}


def _table(folder: Path, **values: str) -> Path:
    path = folder / "job.toml"
    path.write_text("".join(f"{name} = {text}\n" for name, text in (VALID | values).items()))
    return path


def test_paths_are_relative_to_the_file(tmp_path: Path) -> None:
    table = read_launch_table(_table(tmp_path))
    assert table.folder == tmp_path / "job"
    assert table.hosts == ("n1", "n2", "n3", "n4", "n5")
    assert (table.unit, table.minimum) == (1, 4)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"unit": "3", "minimum": "2", "nodes": "3"}, "`unit` must be at most `minimum`"),
        ({"minimum": "5"}, "`minimum` must be at most `nodes`"),
        ({"unit": "3"}, "`nodes` must be a multiple of `unit`"),
        ({"nodes": "6"}, "at least `minimum` \\(6\\) hosts, found 5"),
        ({"hosts": '["n[5-1]"]'}, "expected host lists"),
        ({"hosts": '["n1", "n1"]'}, "expected each host once"),
        ({"hosts": '["../n1"]'}, "expected names of hosts"),
        ({"hosts": '["-oProxyCommand=x"]'}, "expected names of hosts"),
        ({"on_host": '["ssh", "{machine}"]'}, "expected words with {host}"),
        ({"on_host": '["true"]'}, "expected words with {host}"),
        ({"environment": '{"A=B" = "1"}'}, "expected names of variables"),
        ({"silence": '"soon"'}, "expected a duration"),
        ({"noodles": "1"}, "unknown key `noodles`"),
    ],
)
def test_bad_input_is_one_line(
    values: dict[str, str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = _table(tmp_path, **values)
    with pytest.raises(SettingsError, match=message):
        read_launch_table(path)
    assert main(["launch", "--job", str(path)]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
    assert not (tmp_path / "job").exists()
