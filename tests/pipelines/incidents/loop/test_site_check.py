from __future__ import annotations

import sys
from pathlib import Path

import pytest
from tests.ended_processes import all_end

from forewarn.features.errors import InputError
from forewarn.pipelines.incidents.loop.site_check import CheckResult, CheckState, SiteCheck


def check(code: str, *arguments: str, timeout: float = 60.0) -> CheckResult:
    command = (sys.executable, "-I", "-S", "-c", code, *arguments)
    return SiteCheck(command, timeout).run("node-7", action=17, reservation="forewarn-17")


@pytest.mark.parametrize(
    ("code", "state", "passed"),
    [
        (0, CheckState.OK, True),
        (1, CheckState.WARNING, True),
        (2, CheckState.CRITICAL, False),
        (3, CheckState.UNKNOWN, False),
        (4, CheckState.UNKNOWN, False),
        (127, CheckState.UNKNOWN, False),
    ],
)
def test_exit_code_determines_state(code: int, state: CheckState, passed: bool) -> None:
    result = check(f"print('3 of 8 GPUs'); print('bad'); raise SystemExit({code})")
    assert (result.state, result.detail, result.passed) == (state, "bad", passed)
    assert result.output == "3 of 8 GPUs\nbad\n"


def test_killed_check_is_unknown() -> None:
    result = check("import os; os.kill(os.getpid(), 9)")
    assert (result.state, result.detail) == (CheckState.UNKNOWN, "exit code -9")


def test_timed_out_check_is_killed_with_children(tmp_path: Path) -> None:
    script = 'sh -c "sleep 1000; :" "$0" & echo started; wait'
    result = SiteCheck(("sh", "-c", script, str(tmp_path)), 5.0).run("node-7", action=17)
    assert (result.state, result.detail) == (CheckState.UNKNOWN, "no result within 5 s")
    assert result.output == "started\n"
    assert all_end(str(tmp_path))


def test_command_fields_are_replaced() -> None:
    result = check("import sys; print(sys.argv[1:])", "-w{machine}", "{action}", "{reservation};")
    assert result.detail == "['-wnode-7', '17', 'forewarn-17;']"


def test_missing_program_is_named() -> None:
    result = SiteCheck(("/nonexistent/check",)).run("node-7", action=17)
    assert result == CheckResult(
        CheckState.UNKNOWN, "/nonexistent/check: No such file or directory"
    )


def test_long_output_is_truncated() -> None:
    result = check("print('x' * 1_000_000); print('end')")
    assert (len(result.output), result.detail) == (4000, "end")


def test_check_environment_has_no_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FOREWARN_TOKEN", "secret")
    assert check("import os; print('FOREWARN_TOKEN' in os.environ)").detail == "False"


@pytest.mark.parametrize("command", [(), ("",), ("check", "{host}"), ("check", "{}")])
def test_invalid_command_is_refused(command: tuple[str, ...]) -> None:
    with pytest.raises(InputError, match="`check`"):
        SiteCheck(command)


@pytest.mark.parametrize("name", ["-oProxyCommand=x", "", "a b", "a;b", "../a"])
def test_option_like_machine_name_is_refused(name: str) -> None:
    with pytest.raises(InputError, match="not a valid machine name"):
        SiteCheck(("true",)).run(name, action=1)
