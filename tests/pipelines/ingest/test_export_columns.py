"""Inventories and tickets as NetBox, ServiceNow and sites export them."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from forewarn.features.records.record_table import RecordsError
from forewarn.pipelines.cli.main import main
from forewarn.pipelines.config.settings import parse_settings
from forewarn.pipelines.ingest.cmdb import Cmdb, read_cmdb
from forewarn.pipelines.ingest.repair_tickets import Tickets, read_tickets


def cmdb(folder: Path, text: str, **table: object) -> Cmdb:
    path = folder / "cmdb.csv"
    path.write_text(text)
    return read_cmdb(path, parse_settings({"cmdb": table}, name="my.toml").cmdb.reader)


def tickets(folder: Path, text: str, **table: object) -> Tickets:
    path = folder / "tickets.csv"
    path.write_text(text)
    return read_tickets(path, parse_settings({"tickets": table}, name="my.toml").tickets.reader)


@pytest.mark.parametrize(
    "text",
    [
        # A table that can be imported again, of old and new versions, and the present view.
        "name,device_role,tenant,manufacturer,device_type,platform,serial,asset_tag,status,site,"
        "rack_group,rack_name,position,face,comments\n"
        "gpu-17,compute,,Acme,X9,,CH1,,Active,Berlin,,R07,12,Front,\n",
        "name,role,manufacturer,device_type,serial,status,site,location,rack,position\n"
        "gpu-17,compute,Acme,X9,CH1,active,Berlin,hall 1,R07,12\n",
        "Name,Status,Tenant,Site,Location,Rack,Role,Manufacturer,Type,IP Address\n"
        "gpu-17,Active,,Berlin,hall 1,R07,compute,Acme,X9,10.0.0.7/24\n",
    ],
)
def test_netbox_devices_describe_machines(tmp_path: Path, text: str) -> None:
    known = cmdb(tmp_path, text)
    (row,) = known.machines.to_pylist()
    assert row == {"machine_id": "gpu-17", "rack": "R07", "data_center": "Berlin"}
    assert len(known.attributes) == 0
    assert known.note.startswith("read as a netbox export of devices: ")


@pytest.mark.parametrize(
    "text",
    [
        "device,module_bay,module_type,status,serial,asset_tag\ngpu-17,GPU 0,H100,active,0042,\n",
        "Device,Name,Label,Role,Manufacturer,Part ID,Serial number,Asset tag\n"
        "gpu-17,GPU0,,GPU,NVIDIA,900-2G,0042,A1\n",
    ],
)
def test_netbox_parts_describe_gpus(tmp_path: Path, text: str) -> None:
    assert cmdb(tmp_path, text).attributes.to_pylist() == [
        {"gpu_serial": "0042", "machine_id": "gpu-17"}
    ]


@pytest.mark.parametrize(
    "header",
    [
        "name,serial_number,asset_tag,model_id,location,u_rack,warranty_expiration,sys_class_name",
        '"Name","Serial number","Asset tag","Model ID","Location","u_rack","Warranty expiration",'
        '"Class"',
    ],
)
def test_servicenow_servers_describe_machines(tmp_path: Path, header: str) -> None:
    known = cmdb(tmp_path, f"{header}\ngpu-17,CH1,A1,X9,Berlin,R07,2027-03-01,Server\n")
    assert known.machines.to_pylist() == [
        {
            "machine_id": "gpu-17",
            "rack": "R07",
            "data_center": "Berlin",
            "expiration_date": "2027-03-01",
        }
    ]


def test_configured_columns_come_first(tmp_path: Path) -> None:
    columns = {"gpu_serial": "S/N", "rack": "Cabinet"}
    text = "S/N,Cabinet,Owner\n0042,c9,me\n"
    assert cmdb(tmp_path, text, columns=columns).attributes.to_pylist() == [
        {"gpu_serial": "0042", "rack": "c9", "Owner": "me"}
    ]


def test_configured_columns_override_a_preset(tmp_path: Path) -> None:
    text = "Name,Site,Rack,Role,Room\ngpu-17,Berlin,R07,compute,hall 1\n"
    known = cmdb(tmp_path, text, preset="netbox", columns={"data_center": "Room"})
    assert known.machines.to_pylist() == [
        {"data_center": "hall 1", "machine_id": "gpu-17", "rack": "R07"}
    ]


def test_our_columns_are_taken_as_they_are(tmp_path: Path) -> None:
    known = cmdb(tmp_path, "gpu_serial,serial,device,rack\nSN1,CH1,gpu-17,r1\n")
    assert known.attributes.column_names == ["gpu_serial", "serial", "device", "rack"]
    assert known.note == ""


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({}, r"column `gpu_serial` is missing, found asset, place. Name it in"),
        ({"preset": "netbox"}, r"is no netbox export, expected columns `device` and `serial_num"),
        (
            {"columns": {"gpu_serial": "Serial"}},
            r"column `Serial` is missing, which `columns` reads as `gpu_serial`, found asset, pl",
        ),
    ],
)
def test_unknown_headers_are_refused(
    tmp_path: Path, table: dict[str, object], message: str
) -> None:
    with pytest.raises(RecordsError, match=message):
        cmdb(tmp_path, "asset,place\nA1,r1\n", **table)


@pytest.mark.parametrize(
    "header",
    [
        "number,cmdb_ci.serial_number,opened_at,resolved_at,close_code,sys_created_on,state",
        "Number,Configuration item.Serial number,Opened,Resolved,Resolution code,Created,State",
    ],
)
def test_servicenow_incidents_are_tickets(tmp_path: Path, header: str) -> None:
    row = "INC1,0042,2025-01-02 10:00:00,2025-01-03 11:00:00,board,2025-01-02 12:00:00,Closed"
    read = tickets(tmp_path, f"{header}\n{row}\n")
    (ticket,) = read.table.to_pylist()
    assert (ticket["gpu_serial"], ticket["cause"]) == ("0042", "board")
    times = [ticket[name].isoformat() for name in ("failed_at", "repaired_at", "known_at")]
    assert [time[:13] for time in times] == ["2025-01-02T10", "2025-01-03T11", "2025-01-02T12"]
    assert next(read.notes()).endswith("`sys_created_on` is known_at") or "Created" in header


def test_ticket_without_a_serial_column_says_where_to_name_it(tmp_path: Path) -> None:
    with pytest.raises(
        RecordsError,
        match=r"`gpu_serial` is missing.*`.tickets. columns",
    ):
        tickets(tmp_path, "number,cmdb_ci,opened_at\nINC1,gpu-17,2025-01-02\n")


def test_ticket_columns_are_configured(tmp_path: Path) -> None:
    columns = {"gpu_serial": "S/N", "failed_at": "Down since"}
    read = tickets(tmp_path, "S/N;Down since\n0042;2025-01-02\n", columns=columns)
    assert read.table["gpu_serial"].to_pylist() == ["0042"]


def test_records_take_the_rack_of_their_machine(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for host, serial in (("gpu-17", "0042"), ("gpu-18", "0043")):
        (tmp_path / "drops" / host).mkdir(parents=True)
        (tmp_path / "drops" / host / "smi.csv").write_text(
            f"timestamp, index, serial, temperature.gpu\n2025/01/02 10:00:00.000, 0, {serial}, 41\n"
        )
    devices = tmp_path / "netbox.csv"
    devices.write_text("Name,Status,Site,Rack,Role\ngpu-17,Active,Berlin,R07,compute\n")
    words = ["--raw", str(tmp_path / "drops"), "--out", str(tmp_path / "records")]
    assert main(["ingest", *words, "--cmdb", str(devices)]) == 0
    table = pq.read_table(tmp_path / "records/date=2025-01-02")
    columns = ["gpu_serial", "rack", "data_center"]
    rows = {row["gpu_serial"]: row for row in table.select(columns).to_pylist()}
    assert (rows["0042"]["rack"], rows["0042"]["data_center"]) == ("R07", "Berlin")
    assert rows["0043"]["rack"] is None
    assert "1 machines are not in the CMDB; " in capsys.readouterr().err


def test_servicenow_assets_name_machine_as_ci(tmp_path: Path) -> None:
    header = '"u_room","asset_tag","serial_number","display_name","ci","install_status"'
    known = cmdb(tmp_path, f'{header}\n"R1","A1","CH1","A1 - Server","gpu-17","In use"\n')
    assert known.machines.to_pylist() == [{"machine_id": "gpu-17"}]
