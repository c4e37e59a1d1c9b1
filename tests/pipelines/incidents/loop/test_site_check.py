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
def test_an_exit_code_is_a_state(code: int, state: CheckState, passed: bool) -> None:
    result = check(f"print('3 of 8 GPUs'); print('bad'); raise SystemExit({code})")
    assert (result.state, result.detail, result.passed) == (state, "bad", passed)
    assert result.output == "3 of 8 GPUs\nbad\n"


def test_a_check_that_is_killed_has_said_nothing() -> None:
    result = check("import os; os.kill(os.getpid(), 9)")
    assert (result.state, result.detail) == (CheckState.UNKNOWN, "exit code -9")


def test_a_check_that_runs_too_long_is_ended_with_its_children(tmp_path: Path) -> None:
    script = 'sh -c "sleep 1000; :" "$0" & echo begun; wait'
    result = SiteCheck(("sh", "-c", script, str(tmp_path)), 5.0).run("node-7", action=17)
    assert (result.state, result.detail) == (CheckState.UNKNOWN, "no result in 5 s")
    assert result.output == "begun\n"
    assert all_end(str(tmp_path))


def test_the_fields_of_a_command_are_filled_in() -> None:
    result = check("import sys; print(sys.argv[1:])", "-w{machine}", "{action}", "{reservation};")
    assert result.detail == "['-wnode-7', '17', 'forewarn-17;']"


def test_a_program_that_is_not_there_is_named() -> None:
    result = SiteCheck(("/nonexistent/check",)).run("node-7", action=17)
    assert result == CheckResult(
        CheckState.UNKNOWN, "/nonexistent/check: No such file or directory"
    )


def test_only_the_end_of_much_output_stays() -> None:
    result = check("print('x' * 1_000_000); print('end')")
    assert (len(result.output), result.detail) == (4000, "end")


def test_a_check_does_not_see_our_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FOREWARN_TOKEN", "secret")
    assert check("import os; print('FOREWARN_TOKEN' in os.environ)").detail == "False"


@pytest.mark.parametrize("command", [(), ("",), ("check", "{host}"), ("check", "{}")])
def test_a_command_that_cannot_be_run_is_refused(command: tuple[str, ...]) -> None:
    with pytest.raises(InputError, match="`check`"):
        SiteCheck(command)


@pytest.mark.parametrize("name", ["-oProxyCommand=x", "", "a b", "a;b", "../a"])
def test_a_name_that_could_be_an_option_is_refused(name: str) -> None:
    with pytest.raises(InputError, match="no name of a machine"):
        SiteCheck(("true",)).run(name, action=1)
