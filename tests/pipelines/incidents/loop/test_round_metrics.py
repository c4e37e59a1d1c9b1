from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.pipelines.incidents.loop.test_responder import Rig, make_rig

from forewarn.features.time_units import HOUR, MINUTE, SECOND, Nanoseconds
from forewarn.pipelines.incidents.api.prometheus_metrics import RespondMetrics
from forewarn.pipelines.incidents.loop.round_metrics import write_round
from forewarn.response.state.machine import ServiceState


@pytest.fixture(params=["act", "propose", "observe"])
def mode(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def rig(tmp_path: Path, mode: str) -> Iterator[Rig]:
    rig = make_rig(tmp_path, mode)
    rig.responder.metrics = RespondMetrics(rig.responder.site.pools)
    rig.once()
    with rig.ledger:
        yield rig


def values(rig: Rig) -> dict[str, float]:
    """Return all values of the responder by their series."""
    responder = rig.responder
    rig.clock.at = Nanoseconds(rig.clock.at + 5 * SECOND)  # past the cache
    responder.metrics.read(rig.ledger, responder.site.switch(rig.ledger), rig.clock.at)
    lines = responder.metrics.text().decode().splitlines()
    pairs = (line.rpartition(" ") for line in lines if not line.startswith("#"))
    return {name.removeprefix("forewarn_respond_"): float(value) for name, _, value in pairs}


def test_fatal_fault_is_shown_until_isolated(rig: Rig, mode: str) -> None:
    rig.report("xid 79")
    rig.once(20)
    assert values(rig)[f'fatal_machines_in_service{{blocked_by="{mode}"}}'] == 1
    rig.once(1)
    still = values(rig)[f'fatal_machines_in_service{{blocked_by="{mode}"}}']
    assert still == (0 if mode == "act" else 1)


@pytest.mark.parametrize("mode", ["act"])
def test_isolations_and_machines_are_counted(rig: Rig) -> None:
    before = values(rig)
    assert before['isolations_total{by="forewarn",pool="train"}'] == 0
    assert before['machines{pool="train",state="all"}'] == 8
    rig.driver.set("m5", ServiceState.DRAINED, "disk")
    rig.report("xid 79")
    rig.once(20)
    rig.once(1)
    after = values(rig)
    assert after['isolations_total{by="forewarn",pool="train"}'] == 1
    assert after['isolations_total{by="person",pool="train"}'] == 0
    assert after['machines{pool="train",state="out"}'] == 2
    assert after['machines_out{owner="forewarn",pool="train"}'] == 1
    assert after['machines_out{owner="other",pool="train"}'] == 1
    assert after['limit_used_ratio{limit="fleet_rate",pool="train"}'] == 1 / 2
    assert after['limit_used_ratio{limit="share",pool="train"}'] == 0  # the damage is certain
    assert after['gpus_out{cause="external",pool="train"}'] == 8
    assert after['gpus_out{cause="certain_damage",pool="train"}'] == 8
    assert after['decisions_total{ruling="act"}'] == 1


@pytest.mark.parametrize("mode", ["act"])
def test_delay_and_overrides_come_from_ledger(rig: Rig) -> None:
    assert values(rig)['isolation_delay_seconds_sum{by="forewarn",pool="train"}'] == 0
    rig.report("xid 79")
    rig.once(20)
    delayed = values(rig)
    assert delayed['isolation_delay_seconds_sum{by="forewarn",pool="train"}'] == 1200
    assert delayed['isolation_delay_seconds_bucket{by="forewarn",le="900.0",pool="train"}'] == 0
    assert delayed['isolation_delay_seconds_bucket{by="forewarn",le="1800.0",pool="train"}'] == 1
    assert delayed["decision_delay_seconds_count"] == 1
    assert sum(n for name, n in delayed.items() if name.startswith("open_actions{")) == 1
    assert delayed['overrides_total{cause="certain_damage"}'] == 0
    rig.driver.set("m0", ServiceState.IN_SERVICE)  # a person takes the mark away
    rig.once(1)
    after = values(rig)
    assert after['overrides_total{cause="certain_damage"}'] == 1
    assert after['isolations_total{by="forewarn",pool="train"}'] == 1
    assert after['outcomes{fate="isolated",outcome="confirmed"}'] == 0


@pytest.mark.parametrize("mode", ["propose"])
def test_proposal_waits_since_first_proposed(rig: Rig) -> None:
    rig.report("xid 79")
    rig.once(20)
    rig.report("xid 48", valid_until=Nanoseconds(rig.clock.at + 48 * HOUR))
    rig.once(5 * 60)
    waits = {k: v for k, v in values(rig).items() if k.startswith("person_wait")}
    assert list(waits.values()) == [5 * 3600]
    assert 'pool="train"' in next(iter(waits))


@pytest.mark.parametrize("mode", ["act"])
def test_marks_and_ledger_disagree(rig: Rig) -> None:
    rig.driver.set("m3", ServiceState.DRAINED, "forewarn:77 xid 79")
    rig.once(1)
    assert values(rig)["marks_without_action"] == 1
    assert values(rig)["actions_without_mark"] == 0


@pytest.mark.parametrize("mode", ["act"])
def test_clock_offset_is_set_when_observing(rig: Rig) -> None:
    rig.clock.at = Nanoseconds(rig.clock.at + 30 * MINUTE)
    rig.responder.once()
    assert values(rig)['clock_offset_seconds{reference="scheduler"}'] == 1800


@pytest.mark.parametrize("mode", ["act"])
def test_loop_without_api_writes_textfile(rig: Rig, tmp_path: Path) -> None:
    site = rig.responder.site
    table = site.settings.site.model_copy(update={"metrics": "prom"})
    site = replace(site, settings=site.settings.model_copy(update={"site": table}))
    (tmp_path / "prom").mkdir()
    write_round(site, rig.ledger, rig.responder.metrics)
    text = (tmp_path / "prom" / "forewarn_respond.prom").read_text()
    assert 'forewarn_respond_machines{pool="train",state="all"} 8.0' in text
    assert 'forewarn_respond_beat_time_seconds{beat="loop"}' in text


def test_blockers_and_mode_are_shown(rig: Rig, mode: str) -> None:
    kind = {"act": "handled", "propose": "person", "observe": "mode"}[mode]
    before = values(rig)
    assert before[f'blocked_decisions_total{{blocked_by="{kind}",ruling="hold"}}'] == 0
    assert before[f'pool_mode{{mode="{mode}",pool="train"}}'] == 1
    rig.report("xid 79")
    rig.once(20)
    rig.once(1)
    rig.once(1)
    after = values(rig)
    ruling = {"act": "hold"}.get(mode, mode)
    assert after[f'blocked_incidents{{blocked_by="{kind}"}}'] == 1
    assert after[f'blocked_decisions_total{{blocked_by="{kind}",ruling="{ruling}"}}'] == 1
