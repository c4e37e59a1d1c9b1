"""Differences between policies."""

from __future__ import annotations

from pathlib import Path

import pytest

from forewarn.pipelines.incidents.replay.policy_file import load_policy
from forewarn.response.policy.policy_diff import diff_policies

DEFAULT = load_policy()


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("", []),
        ('[xids.79]\nname = "gone"', []),
        (
            '[xids.74]\nmode = "now"',
            [
                "xid 74 (NVLink error): step: check in mode finish -> check in mode now",
            ],
        ),
        (
            '[actions.restart]\nmax_age = "2h"',
            [
                "xid 79, xid 151, xid 167, recovery reboot, requested by the driver: acted on for: "
                "1 day -> 2 h"
            ],
        ),
        (
            "[xids.92]\nfrequency = { times = 3 }\n[frequency]\nisolate_manual = { times = 2 }",
            [
                "xid 92 (many single bit errors of memory): frequency: no_new_jobs from 5 times in "
                "1 day on, until 1 day later -> no_new_jobs from 3 times in 1 day on, until 1 day "
                "later",
                "frequency: a person decides: from 3 times in 7 days on -> from 2 times in 7 days "
                "on",
            ],
        ),
        (
            '[levels.process_restart]\nrung = "restart"\n[ladder.limits]\nreplace = "5min"',
            [
                "level process_restart: job begins with: process -> restart",
                "ladder: time limit of replace: 10 min -> 5 min",
            ],
        ),
        (
            '[kinds.verdict]\nconfirmed_by = ["check"]\nalone = "avoid"',
            [
                "verdict: confirmed by: check or dump or exit_code or kernel_log or log or stack "
                "-> check",
                "verdict: unconfirmed at most: tell -> avoid",
            ],
        ),
        (
            '[xids.45]\nfollows = [79, 9]\n[xids.200]\nstep = "tell"',
            [
                "xid 45 (channel removed after another error): follows: any other code -> 9, 79",
                "xid 200: severity: none -> notice",
                "xid 200: step: none -> tell",
                "xid 200: acted on for: none -> 1 day",
            ],
        ),
    ],
)
def test_each_change_is_one_line(tmp_path: Path, text: str, lines: list[str]) -> None:
    path = tmp_path / "site.toml"
    path.write_text(text, encoding="utf-8")
    changes = diff_policies(DEFAULT, load_policy([path]))
    assert sorted(change.text for change in changes) == sorted(lines)


def test_severity_change_lists_affected_codes(tmp_path: Path) -> None:
    path = tmp_path / "site.toml"
    path.write_text('[steps]\nwarning = { step = "tell" }', encoding="utf-8")
    changes = diff_policies(DEFAULT, load_policy([path]))
    assert {(change.key, change.before, change.after) for change in changes} == {
        ("step", "avoid", "tell")
    }
    names = {name for change in changes for name in change.names}
    assert {"severity warning", "at_risk"} <= names
    assert not {"xid 79", "xid 31"} & names
