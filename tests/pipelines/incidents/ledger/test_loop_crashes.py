"""The loop by its own command, killed between any two steps, and run again."""

from __future__ import annotations

from pathlib import Path

from tests.pipelines.incidents.crash_test_loop import run_deaths

# A step is a commit or a change by the scheduler, before and after; there are some 700. By hand
# with a stride of 1, all of them.
STRIDE = {"sqlite": "237", "postgresql": "401"}
LIFE = ["intended", "sent", "holding", "drained", "releasing", "released"]


def test_killed_between_any_two_steps_each_machine_is_drained_and_given_back_once(
    tmp_path: Path, url: str
) -> None:
    *killed, unhurt = run_deaths(tmp_path, url, STRIDE[url.split(":")[0]])
    assert len(killed) > 1
    assert unhurt["lives"] == {
        "node-00001 restart": LIFE,
        "node-00002 drain": [state for state in LIFE if state != "holding"],
    }
    once = ["restart node-00001", "undo node-00001", "drain node-00002", "undo node-00002"]
    for death in [*killed, unhurt]:
        assert death["agreed"], death
        assert (death["lives"], death["n_actions"]) == (unhurt["lives"], 2)
        assert [change for change in death["told"] if change in once] == once
        assert death["told"].count("notify 17") <= 1  # a death in between leaves jobs untold
        assert death["out"] == []
    assert unhurt["told"].count("notify 17") == 1
