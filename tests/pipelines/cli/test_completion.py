from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from forewarn.pipelines.cli.main import main


@pytest.fixture
def bash(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    assert main(["completion", "bash"]) == 0
    script = tmp_path / "forewarn.bash"
    script.write_text(capsys.readouterr().out)
    return script


def _completed(script: Path, folder: Path, *words: str) -> set[str]:
    """Return the completions of bash for the last word, in a folder."""
    lines = (
        f"source {script}",
        "COMP_WORDS=(forewarn " + " ".join(f"'{word}'" for word in words) + ")",
        f"COMP_CWORD={len(words)}",
        "_shtab_forewarn forewarn",
        'printf "%s\\n" "${COMPREPLY[@]}"',
    )
    run = subprocess.run(
        ["bash", "-c", "\n".join(lines)], cwd=folder, capture_output=True, text=True, check=False
    )
    assert run.stderr == ""
    return set(filter(None, run.stdout.splitlines()))


def test_bash_completes_commands(bash: Path, tmp_path: Path) -> None:
    assert _completed(bash, tmp_path, "co") == {
        *("collect", "compact", "completion", "config", "console")
    }
    assert _completed(bash, tmp_path, "models", "r") == {"rollback"}
    assert _completed(bash, tmp_path, "completion", "") == {"bash", "zsh"}


def test_bash_completes_options_and_paths(bash: Path, tmp_path: Path) -> None:
    (tmp_path / "records").mkdir()
    assert _completed(bash, tmp_path, "backtest", "--st") == {"--start", "--strategies"}
    assert "records" in _completed(bash, tmp_path, "backtest", "--records", "rec")


def test_zsh_completes_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "zsh"]) == 0
    script = capsys.readouterr().out
    assert script.startswith("#compdef forewarn")
    for name in ("demo", "score", "models", "completion"):
        assert f"\n    {name}:'" in script
    assert ":records:_files" in script


def test_unknown_shell_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["completion", "csh"])
    assert stop.value.code == 2
    assert "csh" in capsys.readouterr().err
