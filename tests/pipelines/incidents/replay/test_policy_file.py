"""Tests of policy files: overlays, configuration and validation."""

from __future__ import annotations

from collections.abc import Callable
from importlib.resources import files
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from forewarn.features.time_units import DAY, HOUR
from forewarn.features.xid_catalogue import FATAL_XIDS
from forewarn.pipelines.config.settings import Settings, SettingsError
from forewarn.pipelines.incidents.replay.policy_file import load_policy, policy_of_site
from forewarn.response.policy.fault_level import FaultLevel
from forewarn.response.policy.policy_diff import diff_policies
from forewarn.response.policy.policy_rule import FaultFrequency
from forewarn.response.state.finding import FindingKind, Severity
from forewarn.response.state.step import DrainMode, Step

DEFAULT = load_policy()
TEXT = (files("forewarn.pipelines.incidents.replay") / "policy.toml").read_text(encoding="utf-8")
CODES = [line for line in TEXT.splitlines() if line[:1].isdigit()]

Write = Callable[[str], Path]


@pytest.fixture
def overlay(tmp_path: Path) -> Write:
    def write(text: str) -> Path:
        path = tmp_path / f"site-{len(list(tmp_path.iterdir()))}.toml"
        path.write_text(text, encoding="utf-8")
        return path

    return write


# --- overlays -------------------------------------------------------------------------------------


def test_empty_overlay_changes_nothing(overlay: Write) -> None:
    for text in ("", "# nothing\n", "[xids]\n", "[xids.79]\n", TEXT):
        policy = load_policy([overlay(text)])
        assert (policy, policy.version) == (DEFAULT, DEFAULT.version)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=20)
@given(lines=st.lists(st.sampled_from(CODES), unique=True, max_size=9))
def test_overlay_with_default_values_changes_nothing(overlay: Write, lines: list[str]) -> None:
    assert load_policy([overlay("\n".join(["[xids]", *lines]))]) == DEFAULT


def test_overlay_changes_only_its_keys(overlay: Write) -> None:
    policy = load_policy(
        [overlay('[xids.94]\nfrequency = { times = 3 }\n[xids.79]\naction = "check"')]
    )
    assert policy.xids[94].rule.frequency == FaultFrequency(3, DAY, FaultLevel.NO_NEW_JOBS, DAY)
    assert policy.xids[94].rule.severity is Severity.WARNING
    assert policy.xids[79].rule == DEFAULT.xids[74].rule
    assert policy.xids[79].name == DEFAULT.xids[79].name
    changed = {code for code in DEFAULT.xids if policy.xids[code] != DEFAULT.xids[code]}
    assert changed == {79, 94}
    assert policy.kinds == DEFAULT.kinds


def test_action_applies_to_codes_without_own_keys(overlay: Write) -> None:
    text = '[actions.reset]\nmode = "now"\n[xids.119]\nmode = "finish"'
    policy = load_policy([overlay(text)])
    assert policy.xids[120].rule.mode is DrainMode.NOW
    assert policy.xids[119].rule.mode is DrainMode.FINISH
    assert policy.xids[79].rule == DEFAULT.xids[79].rule


def test_last_overlay_wins(overlay: Write) -> None:
    first = overlay('[kinds.blind]\nseverity = "warning"\n[kinds.verdict]\nmax_age = "2h"')
    second = overlay('[kinds.blind]\nseverity = "notice"')
    policy = load_policy([first, second])
    assert policy.kinds[FindingKind.BLIND] == DEFAULT.kinds[FindingKind.BLIND]
    assert policy.kinds[FindingKind.VERDICT].max_age == 2 * HOUR


def test_unlisted_code_rule_spares_listed_codes(overlay: Write) -> None:
    policy = load_policy([overlay('[kinds.xid]\nstep = "check"\nmax_age = "2h"\n[xids.900]\n')])
    assert policy.kinds[FindingKind.XID].step is Step.CHECK
    assert {code: policy.xids[code] for code in DEFAULT.xids} == DEFAULT.xids
    assert policy.xids[900].rule == DEFAULT.kinds[FindingKind.XID]


def test_version_ignores_names(overlay: Write) -> None:
    renamed = load_policy([overlay('[xids.79]\nname = "gone"')])
    assert renamed.version == DEFAULT.version
    texts = (
        '[xids.79]\nmode = "now"',
        "[xids.79]\nfollows = [48]",
        '[kinds.verdict]\nconfirmed_by = ["kernel_log"]',
        "[frequency]\nisolate_manual = { times = 4 }",
        '[levels.gpu_reset]\nrung = "requeue"',
        "[ladder]\nretries = 4",
        '[steps.warning]\nstep = "tell"',
    )
    versions = {load_policy([overlay(text)]).version for text in texts}
    assert len(versions | {DEFAULT.version}) == len(texts) + 1


# --- configuration --------------------------------------------------------------------------------


def test_default_configuration_keeps_default_policy() -> None:
    assert policy_of_site([], Settings()).version == DEFAULT.version


def test_site_failure_codes_are_errors() -> None:
    policy = load_policy(failures=[63, 79, 31, 900])
    rules = {code: policy.xids[code].rule for code in (63, 79, 31, 900)}
    severities = {code: rule.severity for code, rule in rules.items()}
    assert severities == {63: "error", 79: "critical", 31: "error", 900: "error"}
    assert rules[31].at_most is Step.TELL  # application errors still drain nothing


def test_unreported_codes_are_only_told() -> None:
    policy = load_policy(reported=[79])
    assert {code for code in policy.xids if policy.xids[code].rule.at_most.isolates} == {79}
    assert policy.kinds[FindingKind.XID].at_most is Step.TELL


def test_report_xids_apply_only_if_configured() -> None:
    configured = Settings.model_validate({"collection": {"report_xids": list(FATAL_XIDS)}})
    assert policy_of_site([], configured).xids[63].rule.at_most is Step.TELL
    assert policy_of_site([], Settings()).xids[63].rule.at_most is Step.REPLACE


# --- validation -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[xid.79]\nstep = 'check'", "unknown key `xid` .* expected a key of the default policy"),
        ("[xids.79]\nstep = 'x'", "key `xids.79.step`: found 'x', expected 'tell', .* 'replace'"),
        ("[xids.079]\n", "key `xids.079`: found '079', expected the number of an Xid, 1 to 1023"),
        ("[xids.79x]\n", "key `xids.79x`: found '79x', expected the number of an Xid"),
        (
            "[xids.79]\nfollows = 'all'",
            "`xids.79.follows`: found 'all', expected \"any\" or a list",
        ),
        (
            "[xids.79]\naction = 'gone'",
            "key `xids.79.action`: found 'gone', expected application, ",
        ),
        (
            "[xids.31.frequency]\ntimes = 3",
            "`xids.31.frequency` has no `within`, expected one",
        ),
        (
            "[xids.31]\nfrequency = {times = 3, within = '1d', level = 'isolate'}",
            "`xids.31.frequency` has no `release`, expected one",
        ),
        (
            "[xids.31]\nduration = {fault_after = '20s', level = 'isolate'}",
            "`xids.31.duration` has no `recover_after`, expected one",
        ),
        ("[xids.31]\nlevel = 'gone'", "key `xids.31.level`: found 'gone', expected 'ignore', "),
        (
            "[xids.31]\nlevel = 'isolate_manual'",
            "key `xids.31.level`: found 'isolate_manual', expected a milder level",
        ),
        ("[levels.gone]\nstep = 'tell'", "key `levels.gone`: found 'gone', expected 'ignore', "),
        (
            "[levels.isolate]\nscope = 'job'",
            "key `levels.isolate.scope`: found 'job', expected 'cluster', because the step",
        ),
        ("[levels.isolate]\nrung = 'x'", "`levels.isolate.rung`: found 'x', expected 'step_retry'"),
        ("[ladder.limits]\nx = '1min'", "`ladder.limits.x`: found 'x', expected 'step_retry'"),
        ("[actions.new]\n[xids.79]\naction = 'new'", "`xids.79` has no `severity`, expected one"),
        ("[kinds.other]\n", "key `kinds.other`: found 'other', expected 'at_risk', "),
        ("[kinds.blind]\nat_most = 'drain'", "`kinds.blind.at_most`: found 'drain', expected at m"),
        ("[kinds.at_risk]\nmode = 'now'", "`kinds.at_risk.mode`: found 'now', expected 'finish'"),
        (
            "[kinds.at_risk]\nstep = 'reset'",
            "`kinds.at_risk.step`: found 'reset', expected at most",
        ),
        (
            "[kinds.at_risk]\nmax_age = '1 week'",
            "`kinds.at_risk.max_age`: found '1 week', expected",
        ),
        ("[steps]\nerror = {step = 'tell'}", "`steps.error` is tell, expected nothing milder than"),
        (
            "[frequency]\nisolate_manual = { times = 1 }",
            "key `frequency.isolate_manual.times`: found 1, expected greater than or equal to 2",
        ),
        *(
            (f"[xids.{code}]\nat_most = 'avoid'", f"`xids.{code}.at_most`: found 'avoid', expected")
            for code in (48, 64, 79, 95, 140, 154)
        ),
        (
            "[kinds.check]\nat_most = 'avoid'",
            "`kinds.check.at_most`: found 'avoid', expected at lea",
        ),
        ("[xids.79]\naction = 'application'", "`xids.79.at_most`: found 'tell', expected at least"),
        ("[actions.restart]\nat_most = 'tell'", "`xids.79.at_most`: found 'tell', expected at lea"),
        ("[xids.95]\nconfirmed_by = ['check']", "`xids.95.alone`: found 'tell', expected at least"),
        *(
            (
                f"[kinds.verdict]\nconfirmed_by = ['{name}']",
                f"found '{name}', expected a kind of evidence: metrics, kernel_log, dump",
            )
            for name in ("xid", "diagnosis", "at_risk", "list")
        ),
        (
            "[kinds.failure]\nseverity = 'warning'\nstep = 'avoid'",
            "`kinds.failure.step`: found 'avoid', expected at least 'drain', because",
        ),
        ("xids = 3", "key `xids`: found 3, expected"),
        ("[xids", "is not a TOML file"),
    ],
)
def test_invalid_overlay_is_refused_with_file_name(overlay: Write, text: str, message: str) -> None:
    path = overlay(text)
    with pytest.raises(SettingsError, match=message) as refusal:
        load_policy([path])
    assert str(refusal.value).startswith(f"{path}: ")
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("text", "instead"),
    [
        (
            "[xids.92]\noften = { times = 3 }",
            "key `xids.92.often` was replaced. Write `frequency = { times = 3 }` instead.",
        ),
        (
            '[actions.watch]\noften = { times = 3, within = "2d", step = "check" }',
            'Write `frequency = { times = 3, within = "2d", level = "no_new_jobs", '
            'release = "2d" }` instead.',
        ),
        (
            '[kinds.check]\nlasting = { span = "1h", step = "reset" }',
            'Write `duration = { fault_after = "1h", recover_after = "1h", level = "gpu_reset" }`',
        ),
        (
            '[escalation]\nagain = "3d"',
            'Write `[frequency] next_step = { within = "3d", release = "3d" }` instead.',
        ),
        (
            "[escalation]\nmost = 1",
            "Write `[frequency] isolate_manual = { times = 2 }` instead.",
        ),
        ('[escalation]\ntogether = "5min"', 'Write `[inhibition] together = "5min"` instead.'),
    ],
)
def test_replaced_key_is_refused_with_what_to_write(
    overlay: Write, text: str, instead: str
) -> None:
    """What the message says is accepted."""
    with pytest.raises(SettingsError) as refusal:
        load_policy([overlay(text)])
    assert instead in str(refusal.value)
    new = str(refusal.value).split("Write `")[1].split("`")[0]
    table = "" if new.startswith("[") else f"{text.splitlines()[0]}\n"
    load_policy([overlay(table + new.replace("] ", "]\n", 1))])


def test_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"none\.toml: cannot be read \(No such file"):
        load_policy([tmp_path / "none.toml"])


def test_fatal_action_and_recoveries_can_be_changed(overlay: Write) -> None:
    text = '[xids.149]\nfatal = "restart"\n[recoveries]\nreset = { action = "check" }\n'
    changed = load_policy([overlay(text)])
    fatal = changed.xids[149].fatal
    assert fatal is not None
    assert fatal.step == Step.RESTART
    assert changed.recoveries["reset"].step == Step.CHECK
    assert changed.version != load_policy().version
    names = {change.names for change in diff_policies(load_policy(), changed)}
    assert ("recovery reset, requested by the driver",) in names
    assert ("xid 149, called fatal by the driver",) in names


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[xids.149]\nfatal = "explode"\n', "xids.149.fatal.action`: found 'explode'"),
        ('[recoveries]\nreset = { action = "ignore" }\n', "recoveries.reset.at_most"),
        ('[recoveries]\nexplode = { action = "reset" }\n', "recoveries"),
    ],
)
def test_unknown_driver_actions_are_refused(overlay: Write, text: str, message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        load_policy([overlay(text)])
