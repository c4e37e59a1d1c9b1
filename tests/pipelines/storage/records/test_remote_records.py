from __future__ import annotations

import datetime as dt
import json
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import fs

from forewarn.features.records.failures import Failures
from forewarn.features.records.record_table import FeatureKinds, Records, RecordsError
from forewarn.features.time_units import HOUR
from forewarn.pipelines.cli.main import main
from forewarn.pipelines.storage.files.location import LocationError, RemotePath, parse_location
from forewarn.pipelines.storage.records import record_listing, record_store
from forewarn.pipelines.storage.records.compaction import compact_date
from forewarn.pipelines.storage.records.compaction_metadata import is_compacted_name
from forewarn.pipelines.storage.records.record_store import RecordStore

DAY = dt.date(2025, 1, 1)
MIDNIGHT = dt.datetime(2025, 1, 1)
SERIALS = ["A", "B", "C"]
SECRET = "kept-for-oneself"


@pytest.fixture(scope="module")
def address(free_port: Callable[[], int]) -> Iterator[str]:
    """Start an S3 server and return its address."""
    port = free_port()
    command = [str(Path(sys.executable).with_name("moto_server")), "-H", "127.0.0.1", "-p"]
    quiet = subprocess.DEVNULL
    with subprocess.Popen([*command, str(port)], stdout=quiet, stderr=quiet) as server:
        for _ in range(600):
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                break
            except OSError:
                time.sleep(0.1)
        yield f"127.0.0.1:{port}"
        server.terminate()


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "somebody")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


def options_of(address: str) -> str:
    return f"?endpoint_override={address}&scheme=http"


def sent(folder: Path, address: str, bucket: str) -> str:
    """Copy a folder into a bucket; return its URI."""
    store = fs.S3FileSystem(
        **{"endpoint_override": address, "scheme": "http", "region": "us-east-1"},
        **{"allow_bucket_creation": True, "connect_timeout": 60, "request_timeout": 60},
    )
    store.create_dir(bucket)
    local = fs.LocalFileSystem()
    fs.copy_files(
        str(folder), f"{bucket}/a fleet", source_filesystem=local, destination_filesystem=store
    )
    return f"s3://{bucket}/a%20fleet{options_of(address)}"


def rows_of(hours: list[int], serials: list[str] = SERIALS) -> pa.Table:
    keys = [(serial, hour) for hour in hours for serial in serials]
    columns = {
        "gpu_serial": [serial for serial, _ in keys],
        "timestamp": pa.array([MIDNIGHT + dt.timedelta(hours=h) for _, h in keys]),
        "machine_id": [f"m-{serial}" for serial, _ in keys],
        "temperature": [50.0 + h for _, h in keys],
        "limit": [400] * len(keys),
    }
    return pa.table(columns)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Write a date of three files, with tables of failures and of spans out of service."""
    records = tmp_path / "records"
    for hour in range(3):
        path = records / f"date={DAY}" / f"collected-{hour:02}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(rows_of([hour]), path)
    start = pa.array([MIDNIGHT + dt.timedelta(hours=1)])
    pq.write_table(
        pa.table({"gpu_serial": ["B"], "failed_at": start}), records / "failures.parquet"
    )
    absent = pa.table({"machine_id": ["m-C"], "start": start})
    pq.write_table(absent, records / "out_of_service.parquet")
    return records


def store_of(place: str | Path) -> RecordStore:
    kinds = FeatureKinds(float=("temperature",))
    location = parse_location(str(place))
    return RecordStore(location, kinds, HOUR, ("machine_id",))


def cells(known: tuple[Records, Failures]) -> list[Any]:
    records, failures = known
    temperature = records.numbers("temperature", np.arange(len(records)))
    spans = records.out_of_service
    arrays = (records.gpu, records.time, temperature, spans.gpu, spans.start, spans.end)
    failed = (failures.gpu, failures.failed_at, failures.repaired_at, failures.known_at)
    return [records.serials, *(array.tolist() for array in (*arrays, *failed))]


def names_in(uri: str) -> list[str]:
    """Return the names of the files of records and of temporary files."""
    return all_names_in(uri)


def all_names_in(uri: str) -> list[str]:
    location = parse_location(uri)
    assert isinstance(location, RemotePath)
    return [path.name for path in (location / f"date={DAY}").children()]


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Return the error line of a command that rejects its input."""
    try:
        code: object = main([*arguments])
    except SystemExit as left:
        code = left.code
    output = capsys.readouterr()
    assert (code, output.out) == (2, "")
    assert output.err.count("\n") == 1
    assert SECRET not in output.err
    return output.err


# --- reading and compacting ---------------------------------------------------------------------


def test_bucket_reads_like_a_folder(folder: Path, address: str) -> None:
    local, remote = store_of(folder), store_of(sent(folder, address, "reading"))
    assert cells(remote.read_known()) == cells(local.read_known())
    assert remote.has_failures()
    assert remote.columns() == local.columns()
    assert [(date, path.name) for date, path in remote.files()] == [
        (DAY, f"collected-{hour:02}.parquet") for hour in range(3)
    ]


def test_bucket_outputs_ignore_compaction(
    records: Path, config: Path, address: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    week = tmp_path / "week"
    for day in range(12, 20):
        date = f"date=2025-01-{day}"
        shutil.copytree(records / date, week / date)
    uri, lists = sent(week, address, "lists"), []
    examined = list[dict[str, Any]]()
    for place in (str(week), uri):
        assert main(["doctor", place, "--config", str(config), "--json"]) == 0
        examined.append(json.loads(capsys.readouterr().out))
        del examined[-1]["layout"]  # contains the path
    assert examined[0] == examined[1]
    for number, place in enumerate((str(week), uri, uri)):
        if number == 2:
            assert main(["compact", "--records", uri]) == 0
        out = tmp_path / f"list-{number}"
        options = ["--config", str(config), "--at", "2025-01-20", "--out", str(out)]
        assert main(["score", "--records", place, "--model", "builtin:rules", *options]) == 0
        lists.append([path.read_bytes() for path in out.rglob("at_risk.parquet")])
    assert len(lists[0]) == 1
    assert lists[0] == lists[1] == lists[2]


class Killed(BaseException):
    """Simulates a killed process."""


def test_kill_loses_no_bucket_record(
    folder: Path, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = sent(folder, address, "killed")
    before, sizes = cells(store_of(uri).read_known()), []
    put, unlink = RemotePath.put, RemotePath.unlink
    for n_acts in range(8):
        done: list[str] = []

        def act(work: Any, *arguments: Any, n: int = n_acts, made: list[str] = done) -> None:
            if len(made) == n:
                raise Killed
            made.append("")
            work(*arguments)

        monkeypatch.setattr(RemotePath, "put", lambda *a, act=act: act(put, *a))
        monkeypatch.setattr(RemotePath, "unlink", lambda *a, act=act, **_: act(unlink, *a))
        try:
            compact_date(parse_location(uri), DAY)
            break
        except Killed:
            sizes.append(len(names_in(uri)))
            assert cells(store_of(uri).read_known()) == before
    # Killed before and after the upload, then with one file less at each call.
    assert sizes == [3, 4, 2]
    assert [is_compacted_name(name) for name in names_in(uri)] == [True]
    assert cells(store_of(uri).read_known()) == before


def test_concurrent_compactions_do_not_overwrite(
    folder: Path, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = sent(folder, address, "two")
    partition = parse_location(uri) / f"date={DAY}"
    assert isinstance(partition, RemotePath)
    put = RemotePath.put

    def late(path: RemotePath, local: Path) -> None:
        """Land a late file and run another compaction before the upload."""
        monkeypatch.setattr(RemotePath, "put", put)
        with path.store.open_output_stream((partition / "collected-03.parquet").key) as file:
            pq.write_table(rows_of([3]), file)
        compact_date(parse_location(uri), DAY)
        put(path, local)

    monkeypatch.setattr(RemotePath, "put", late)
    compact_date(parse_location(uri), DAY)
    assert len(store_of(uri).read()) == 12
    assert len(names_in(uri)) == 1


# --- errors of one line -------------------------------------------------------------------------


def test_outdated_listing_is_one_line(
    folder: Path, address: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    uri = sent(folder, address, "missing")
    listed = record_listing.list_records(parse_location(uri))
    (listed[1][1]).unlink()
    monkeypatch.setattr(record_store, "list_records", lambda _: listed)
    line = refused(capsys, "backtest", "--records", uri, "--out", str(folder.parent / "out"))
    assert "collected-01.parquet: is listed but does not exist" in line


def test_access_errors_are_one_line(
    folder: Path, address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    uri = sent(folder, address, "refused")
    other = uri.replace("refused", "nobodys")
    assert "s3://nobodys/a fleet: no such folder" in refused(capsys, "doctor", other)
    nowhere = uri.replace(address, "127.0.0.1:9")
    assert "s3://refused/a fleet: the store reports an error" in refused(capsys, "doctor", nowhere)
    reset = f"http://{address}/moto-api/reset-auth"
    plain = {"Content-Type": "text/plain"}
    urlopen(Request(reset, data=b"0", headers=plain)).close()
    try:
        line = refused(capsys, "compact", "--records", uri)
    finally:
        urlopen(Request(reset, data=b"inf", headers=plain)).close()
    assert "s3://refused/a fleet: the store rejects the credentials" in line


def test_truncated_object_is_named(folder: Path, address: str) -> None:
    (folder / f"date={DAY}" / "collected-01.parquet").write_bytes(b"PAR1")
    with pytest.raises(
        RecordsError, match=r"s3://cut/.*-01\.parquet: is not a complete Parquet file"
    ):
        store_of(sent(folder, address, "cut")).read()


@pytest.mark.parametrize(
    ("uri", "line"),
    [
        (f"s3://me:{SECRET}@bucket/x", "found a key or a name before the bucket"),
        (f"s3://bucket/x?secret_key={SECRET}", "found `secret_key` in a URI, expected AWS_ACCESS"),
        ("s3://bucket/x?zone=1", "found option `zone` in a URI, expected endpoint_override,"),
        ("s3://bucket/x?scheme=ftp", "found an unknown `scheme` in a URI, expected http or https"),
        ("s3:///x", "found a URI without a bucket"),
        ("ftp://host/x", "found a URI of `ftp`, expected a folder or s3://bucket/"),
        ("s3://[/x", "found a URI that cannot be read"),
    ],
)
def test_invalid_uri_is_reported_without_secrets(
    uri: str, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert line in refused(capsys, "doctor", uri)
    with pytest.raises(LocationError) as caught:
        parse_location(uri)
    assert SECRET not in str(caught.value)


def test_writing_commands_reject_uris(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    said = "found a URI, expected a folder on this machine"
    assert said in refused(capsys, "retrain", "--records", "s3://b/x", "--at", "2025-01-01")
    assert said in refused(capsys, "ingest", "--raw", ".", "--out", "s3://b/x")
    assert not list(tmp_path.iterdir())
