"""Options that are left out come from the configuration of the site."""

from __future__ import annotations

import time
from argparse import Namespace
from pathlib import Path

import pytest

from forewarn.features.errors import InputError
from forewarn.pipelines.cli import site_defaults
from forewarn.pipelines.cli.main import build_parser, main
from forewarn.pipelines.cli.site_defaults import CONFIG_VARIABLE, fill_site_defaults, find_config

XID = "2025-01-01T00:00:00+0000 node-1 kernel: NVRM: Xid (PCI:0000:01:00): 79, pid=1, GPU is lost"
SITE = '[site]\nrecords = "gpu"\nlists = "/srv/lists"\n'


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Change to an empty folder, without a configuration anywhere."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(CONFIG_VARIABLE, raising=False)
    monkeypatch.setattr(site_defaults, "_SYSTEM_CONFIG", tmp_path / "etc/forewarn.toml")
    return tmp_path


def parsed(*words: str) -> Namespace:
    args = build_parser(words[0]).parse_args(words)
    fill_site_defaults(args)
    return args


def test_configuration_is_searched_in_order(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = [find_config()]
    (folder / "etc").mkdir()
    (folder / "etc/forewarn.toml").touch()
    found.append(find_config())
    Path("forewarn.toml").touch()
    found.append(find_config())
    monkeypatch.setenv(CONFIG_VARIABLE, "named.toml")
    found.append(find_config())
    named = [None, folder / "etc/forewarn.toml", Path("forewarn.toml"), Path("named.toml")]
    assert found == named


def test_paths_start_at_the_configuration(capsys: pytest.CaptureFixture[str]) -> None:
    Path("conf").mkdir()
    Path("conf/my.toml").write_text(SITE)
    args = parsed("score", "--config", "conf/my.toml", "--at", "now", "--model", "m")
    assert (args.records, args.out) == (Path("conf/gpu"), Path("/srv/lists"))
    assert "configuration conf/my.toml; --records conf/gpu; --out /srv/lists" in (
        capsys.readouterr().err
    )


def test_given_options_win_silently(capsys: pytest.CaptureFixture[str]) -> None:
    Path("my.toml").write_text(SITE)
    args = parsed("doctor", "mine", "--config", "my.toml")
    assert (args.records, capsys.readouterr().err) == (Path("mine"), "")


def test_found_configuration_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    Path("forewarn.toml").write_text(SITE)
    args = parsed("doctor", "mine")
    assert args.config == Path("forewarn.toml")
    assert capsys.readouterr().err == "note: configuration forewarn.toml\n"


def test_review_reads_failures_of_the_records() -> None:
    Path("records").mkdir()
    with pytest.raises(InputError, match=r"records/failures.parquet: .* expected --failures FILE"):
        parsed("review")
    Path("records/failures.parquet").touch()
    args = parsed("review")
    assert (args.at_risk, args.failures) == (Path("lists"), Path("records/failures.parquet"))


def test_remote_records_need_a_command_for_them() -> None:
    Path("forewarn.toml").write_text('[site]\nrecords = "s3://bucket/gpu"\n')
    with pytest.raises(InputError, match=r"`site.records`: found a URI"):
        parsed("retrain", "--at", "now")


def test_missing_named_configuration_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(CONFIG_VARIABLE, "gone.toml")
    assert main(["avoid"]) == 2
    assert "gone.toml: cannot be read" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (["score", "--model", "m", "--at", "now"], "at"),
        (["review", "--failures", "f.csv", "--until", "now"], "until"),
        (["ingest", "--end", "now"], "end"),
        (["diagnose", "run", "--job", "j", "--at", "now"], "at"),
        (["backtest", "--end", "now"], "end"),
    ],
)
def test_now_is_accepted_as_a_time(words: list[str], name: str) -> None:
    before = time.time_ns()
    assert before <= getattr(parsed(*words), name) <= time.time_ns()


def test_ingest_reads_the_sources_of_the_site(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "drops/node-1").mkdir(parents=True)
    (folder / "drops/node-1/kern.log").write_text(f"{XID}\n")
    (folder / "cmdb.csv").write_text("gpu_serial,rack\nSN1,r1\n")
    Path("tickets.csv").write_text("gpu_serial,failed_at\nSN1,2025-01-01\n")
    Path("forewarn.toml").write_text(
        '[site]\nraw = "drops"\ncmdb = "cmdb.csv"\nrepairs = "tickets.csv"\n'
    )
    assert main(["ingest"]) == 0
    output = capsys.readouterr()
    assert "drops: files of 1 hosts: 1 kernel_log" in output.err
    assert "wrote 0 records to records; known failures: 1" in output.out
