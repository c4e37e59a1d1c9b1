from __future__ import annotations

import itertools

import pytest

from forewarn.features.telemetry.exporter_files import read_exporter_files
from forewarn.features.telemetry.host_files.file_rows import HostFileRows, HostFileText
from forewarn.features.time_units import MINUTE, SECOND

START = 1_740_787_200 * SECOND


def page(host: str = "gn01", uuid: str = "GPU-1", pod: str = "", **values: float) -> str:
    labels = f'gpu="0",UUID="{uuid}",Hostname="{host}"' + (f',pod="{pod}"' if pod else "")
    return "".join(f"{name}{{{labels}}} {value}\n" for name, value in values.items())


def read(*texts: str, host: str | None = "gn01") -> HostFileRows:
    """Read files that are ten minutes apart."""
    dropped = HostFileRows()
    files = [HostFileText(str(i), text, START + i * 10 * MINUTE) for i, text in enumerate(texts)]
    read_exporter_files(dropped, host, files, [])
    return dropped


def xids(dropped: HostFileRows) -> list[tuple[int, int]]:
    return sorted(((e["timestamp"] - START) // MINUTE, e["code"]) for e in dropped.events)


@pytest.mark.parametrize("order", list(itertools.permutations(range(4))))
def test_xid_change_between_files_is_event(order: tuple[int, ...]) -> None:
    shown = [(0, ""), (0, "train-a"), (79, "train-b"), (79, "")]
    texts = [page(pod=pod, DCGM_FI_DEV_XID_ERRORS=code) for code, pod in shown]
    dropped = HostFileRows()
    files = [HostFileText(str(i), texts[i], START + i * 10 * MINUTE) for i in order]
    read_exporter_files(dropped, "gn01", files, [])
    assert xids(dropped) == [(20, 79)]
    (event,) = dropped.events
    assert (event["machine_id"], event["gpu_uuid"]) == ("gn01", "GPU-1")
    assert event["known_at"] == event["timestamp"]


def test_constant_gauge_gives_no_event() -> None:
    text = page(DCGM_FI_DEV_XID_ERRORS=79, DCGM_FI_DEV_GPU_TEMP=40)
    assert not read(text, text).events
    assert len(read(text, text).readings) == 2


def test_scrapes_of_one_file_keep_their_order() -> None:
    scrapes = "".join(page(DCGM_FI_DEV_XID_ERRORS=code) for code in (0, 79, 45))
    (first, second) = sorted(read(scrapes).events, key=lambda event: event["timestamp"])
    assert (first["code"], second["code"]) == (79, 45)
    assert START - 1000 < first["timestamp"] < second["timestamp"] <= START


def test_several_machines_mean_federated_metrics() -> None:
    both = page("gn01", DCGM_FI_DEV_GPU_TEMP=40) + page("gn02", "GPU-2", DCGM_FI_DEV_GPU_TEMP=50)
    rows = read(both, host="federate").readings
    assert {(row["gpu_uuid"], row["machine_id"]) for row in rows} == {
        ("GPU-1", "gn01"),
        ("GPU-2", "gn02"),
    }
    pod = page("dcgm-exporter-6ldbb", DCGM_FI_DEV_GPU_TEMP=40)
    assert read(pod, host="gn07").readings[0]["machine_id"] == "gn07"
    assert "machine_id" not in read(pod, host=None).readings[0]


def test_text_without_time_is_unread() -> None:
    dropped = HostFileRows()
    text = page(DCGM_FI_DEV_GPU_TEMP=40, DCGM_EXP_XID_ERRORS_COUNT=1)
    read_exporter_files(dropped, "gn01", [HostFileText("metrics", text, None)], [])
    assert dropped.unread.counts["a reading without a time, in the content or the file name"] == 1
    assert not dropped.events
