"""Definitions of checks: what is valid, and one line for what is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from forewarn.features.inspection.check_table import CheckTable
from forewarn.features.time_units import SECOND
from forewarn.pipelines.config.toml_tables import SettingsError
from forewarn.pipelines.inspection.check_files import load_checks, select_checks

DISK = """
[check.disk_read]
command = ["fio", "--name=r", "--directory={scratch}", "--output-format=json"]
value = {json = "jobs.0.read.bw", unit = "KiB/s", better = "higher"}
category = "storage"
timeout = "60s"
repeat = 5
programs = ["fio"]
conditions = ["idle"]
when = ["accept", "weekly", "suspect:storage"]
compare = ["fleet", "own"]
limit = {min = 500000}
level = "no_new_jobs"
"""


def load(path: Path, text: str) -> dict[str, CheckTable]:
    path.write_text(text)
    return load_checks([path])


def test_example_of_the_documentation(tmp_path: Path) -> None:
    check = load(tmp_path / "site.toml", DISK)["disk_read"]
    assert check.command[0] == "fio"
    assert (check.timeout, check.repeat) == (60 * SECOND, 5)
    assert check.value.json_path == "jobs.0.read.bw"
    assert check.limit is not None
    assert check.limit.min == 500_000


def test_later_file_replaces_single_keys(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text(DISK)
    (tmp_path / "b.toml").write_text("[check.disk_read]\nlimit = {min = 1}\n")
    check = load_checks([tmp_path / "a.toml", tmp_path / "b.toml"])["disk_read"]
    assert check.limit is not None
    assert check.limit.min == 1
    assert check.command[0] == "fio"


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('command = ["fio", "--name=r"', 'command = "fio --name=r" #', "no shell"),
        ('unit = "KiB/s"', 'unit = "furlong"', "furlong"),
        ('better = "higher"', 'better = "upwards"', "upwards"),
        ("repeat = 5", "repeats = 5", "unknown key `check.disk_read.repeats`"),
        ("repeat = 5", "repeat = 0", "repeat"),
        ('json = "jobs.0.read.bw"', 'json = "a", regex = "b"', "expected one source"),
        ('json = "jobs.0.read.bw"', 'regex = "("', "regular expression"),
        ('json = "jobs.0.read.bw"', 'file = "/proc/../nfs/x"', "expected a path below"),
        ('json = "jobs.0.read.bw"', 'count = "/sys/block/*"', "`command` is not used"),
        ("limit = {min = 500000}", "limit = {}", "expected `min` or `max`"),
        ("limit = {min = 500000}", "limit = {min = 2, max = 1}", "above max"),
        ('"suspect:storage"', '"suspect:disks"', "suspect:"),
        ('timeout = "60s"', "timeout = 60", "expected a duration"),
        ("[check.disk_read]", '[check."../etc"]', "../etc"),
        ("[check.disk_read]", "[check.disk_read]\n[check.disk_read]", "not a TOML file"),
    ],
)
def test_bad_definition_is_one_line(tmp_path: Path, old: str, new: str, words: str) -> None:
    assert old in DISK
    with pytest.raises(SettingsError) as raised:
        load(tmp_path / "site.toml", DISK.replace(old, new))
    message = str(raised.value)
    assert words in message
    assert "site.toml" in message
    assert "\n" not in message


def test_set_is_chosen_by_name(tmp_path: Path) -> None:
    checks = load(tmp_path / "site.toml", DISK.replace('"weekly"', '"at_night"'))
    assert list(select_checks(checks, "at_night")) == ["disk_read"]
    assert select_checks(checks, "full") == checks
    with pytest.raises(SettingsError, match="expected one of full, accept"):
        select_checks(checks, "nightly")


def test_identity_changes_with_what_is_measured() -> None:
    table = {"command": ["fio"], "value": {"json": "a", "unit": "s"}}
    check = CheckTable.model_validate(table)
    assert check.identity() == CheckTable.model_validate({**table, "when": ["x"]}).identity()
    assert check.identity() != CheckTable.model_validate({**table, "limit": {"min": 1}}).identity()
