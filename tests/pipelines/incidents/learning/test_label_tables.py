"""Label tables that `forewarn respond` writes, and what retraining reads from them."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.pipelines.incidents.loop.test_responder import FixedClock
from tests.pipelines.incidents.memory_driver import MemoryDriver

from forewarn.features.prediction.instances import find_instances
from forewarn.features.records.fleet_timeline import build_timeline
from forewarn.features.records.record_table import FeatureKinds
from forewarn.features.time_units import HOUR, SECOND, Nanoseconds, RecordCount
from forewarn.pipelines.cli.main import main
from forewarn.pipelines.incidents.api.manual_actions import Operator
from forewarn.pipelines.incidents.ledger.ledger import Ledger
from forewarn.pipelines.incidents.loop.responder import Responder
from forewarn.pipelines.incidents.loop.response_site import ResponseSite
from forewarn.pipelines.storage.records.record_store import RecordStore
from forewarn.response.state.finding import Finding, FindingKind
from forewarn.response.state.machine import Machine, ServiceState

DAY_0 = dt.datetime(2025, 3, 1, tzinfo=dt.UTC)
START = Nanoseconds(1_740_787_200 * SECOND)
CONFIG = """
[respond]
driver = "slurm"
first_day = "1ms"
[respond.pools.train]
mode = "act"
share = 0.5
rack = 4
"""


def _records(folder: Path) -> Path:
    """Two days of hourly records of m0 and m1, with two GPUs each."""
    for day in range(2):
        date = DAY_0 + dt.timedelta(days=day)
        hours = pd.date_range(date, periods=24, freq="h")
        frames = [
            pd.DataFrame(
                {"gpu_serial": f"m{m}g{g}", "machine_id": f"m{m}", "slot": g, "timestamp": hours}
            )
            for m in range(2)
            for g in range(2)
        ]
        path = folder / "records" / f"date={date:%Y-%m-%d}" / "0.parquet"
        path.parent.mkdir(parents=True)
        frame = pd.concat(frames).assign(failure=0)
        pq.write_table(pa.Table.from_pandas(frame, preserve_index=False), path)
    return folder / "records"


@dataclass(slots=True)
class Site:
    """A site with records, an in-memory scheduler and a response loop."""

    folder: Path
    driver: MemoryDriver
    clock: FixedClock
    ledger: Ledger
    responder: Responder

    @property
    def config(self) -> list[str]:
        return ["--config", str(self.folder / "my.toml")]

    def once(self, hour: float) -> None:
        self.clock.at = Nanoseconds(int(START + hour * HOUR))
        self.driver.now = self.clock.at
        self.responder.once()

    def labels(self, horizon: int) -> dict[str, list[int]]:
        """Return the labels of each GPU by hour."""
        store = RecordStore(self.folder / "records", FeatureKinds(), HOUR)
        records, failures = store.read_known()
        instances = find_instances(
            build_timeline(records, failures),
            window_records=RecordCount(1),
            step_records=RecordCount(1),
            horizon=Nanoseconds(horizon * HOUR),
        )
        return {
            serial: instances.label[instances.gpu == number].tolist()
            for number, serial in enumerate(records.serials)
        }


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    _records(tmp_path)
    (tmp_path / "my.toml").write_text(CONFIG)
    of_config = ResponseSite.from_config(tmp_path / "my.toml")
    in_service = ServiceState.IN_SERVICE
    machines = {
        f"m{i}": Machine(f"m{i}", in_service, gpus=2, pool="train", rack=f"r{i}", boot="1")
        for i in range(4)
    }
    driver, clock = MemoryDriver(machines, START), FixedClock(START)
    with of_config.new_ledger() as ledger:
        responder = Responder(of_config, ledger, of_config.policy(), driver, clock)
        made = Site(tmp_path, driver, clock, ledger, responder)
        made.once(0)
        yield made


def _xid(site: Site, hour: float, machine: str = "m0") -> None:
    at = Nanoseconds(int(START + hour * HOUR))
    finding = Finding(
        *("test", f"xid {hour}", FindingKind.XID, "xid 79", machine, at, Nanoseconds(at + HOUR)),
        gpu_serial=f"{machine}g0",
    )
    site.ledger.record_findings([finding], now=at)


def test_no_labels_write_no_table(site: Site) -> None:
    before = site.labels(2)
    site.once(1)
    assert [path.name for path in (site.folder / "records").glob("*.parquet")] == []
    assert before["m0g0"] == [0] * 46 + [-1] * 2


def test_drained_machine_has_unknown_labels(site: Site) -> None:
    _xid(site, 10)
    site.once(10.5)  # the group wait is over
    assert site.driver.machines["m0"].out
    labels = site.labels(2)
    # From one horizon before the drain until its end.
    assert labels["m0g0"] == labels["m0g1"] == [0] * 9 + [-1] * 39
    assert labels["m1g0"] == [0] * 46 + [-1] * 2
    incident = site.ledger.open_incidents()[0]
    Operator(site.ledger, "ann", site.clock.at).undo(incident.id)
    site.once(14)
    site.once(14.1)
    assert not site.driver.machines["m0"].out
    assert site.labels(2)["m0g0"] == [0] * 9 + [-1] * 6 + [0] * 31 + [-1] * 2


def test_failed_gpu_of_drained_machine_is_positive(
    site: Site,
) -> None:
    drained = replace(
        site.driver.machines["m1"],
        state=ServiceState.DRAINED,
        reason="NVLink of GPU 1 broken",
        reason_by="tom",
        reason_at=Nanoseconds(START + 10 * HOUR),
    )
    site.driver.machines["m1"] = drained
    site.once(11)
    site.driver.set("m1", ServiceState.IN_SERVICE)
    site.once(14)
    labels = site.labels(2)
    # A failed GPU has no instances.
    assert labels["m1g1"] == [0] * 8 + [1] * 2 + [0] * 32 + [-1] * 2
    assert labels["m1g0"][8:16] == [-1] * 6 + [0] * 2
    table = pq.read_table(site.folder / "records" / "incident_failures.parquet").to_pylist()
    assert [(row["gpu_serial"], row["cause"], row["source"]) for row in table] == [
        ("m1g1", "NVLink of GPU 1 broken", "ledger")
    ]
    assert table[0]["known_at"] == DAY_0 + dt.timedelta(hours=10)


def test_unwritable_folder_causes_note(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    (site.folder / "records" / "out_of_service.parquet").write_bytes(b"nonsense")
    _xid(site, 10)
    site.once(10.5)
    assert site.driver.machines["m0"].out
    assert "no training labels from incidents were written" in capsys.readouterr().err


# --- history of Slurm -----------------------------------------------------------------------------

HISTORY = """\
m0|2025-03-01T03:00:00|2025-03-01T05:00:00|DRAIN|root(0)|Xid 79 on gpu 0
m1|2025-03-01T09:00:00|2025-03-01T10:00:00|DOWN|slurm(64030)|Not responding
m1|2025-03-02T09:00:00|Unknown|DRAIN|tom(1001)|gpu fan
"""


def test_slurm_history_is_added_once(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    history = site.folder / "events.txt"
    history.write_text(HISTORY)
    command = ["respond", "--slurm-history", str(history), *site.config]
    for _ in range(2):
        assert main([*command, "--json"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(line["machine"], line["gpu_serial"]) for line in lines[:2]] == [
        ("m0", "m0g0"),
        ("m1", None),
    ]
    folder = site.folder / "records"
    assert len(pq.read_table(folder / "incident_failures.parquet")) == 1
    assert len(pq.read_table(folder / "out_of_service.parquet")) == 3
    labels = site.labels(2)
    assert labels["m0g0"][:5] == [0, 1, 1, 0, 0]
    assert labels["m0g1"][:7] == [0, -1, -1, -1, -1, 0, 0]
    # The response loop has its own rows and leaves these unchanged.
    _xid(site, 30)
    site.once(30.5)
    assert len(pq.read_table(folder / "out_of_service.parquet")) == 4
    assert main(command) == 0
    text = capsys.readouterr().out
    assert "3 outages of 2 machines. Failures of a known GPU: 1; of an unknown GPU: 1." in text


@pytest.mark.parametrize(
    ("text", "message"), [("nonsense\n", "expected NodeName"), (None, "No such file")]
)
def test_invalid_history_is_refused(
    site: Site, capsys: pytest.CaptureFixture[str], text: str | None, message: str
) -> None:
    history = site.folder / "events.txt"
    if text is not None:
        history.write_text(text)
    assert main(["respond", "--slurm-history", str(history), *site.config]) == 2
    assert message in capsys.readouterr().err
    assert not list((site.folder / "records").glob("*.parquet"))


def test_history_requires_records(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "my.toml").write_text("")
    (tmp_path / "events.txt").write_text(HISTORY)
    config = ["--config", str(tmp_path / "my.toml")]
    assert main(["respond", "--slurm-history", str(tmp_path / "events.txt"), *config]) == 2
    assert "expected a folder of records" in capsys.readouterr().err
