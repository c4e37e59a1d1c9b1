"""Dictionary columns may hold texts that no row has, such as those of filtered GPUs."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from forewarn.pipelines.cli.main import main

TEXTS = ("gpu_serial", "machine_id", "slot", "gpu_type", "driver_version", "rack")
AT = "2025-01-20T00:00:00Z"


def with_unused_texts(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a dictionary column whose first and last texts are unused."""
    parts = []
    for chunk in pa.chunked_array([column.combine_chunks()]).chunks:
        encoded = chunk.dictionary_encode()
        texts = encoded.dictionary.to_pylist()
        padded = ["0-unused", *texts, *(f"{text}-unused" for text in texts), "z-unused"]
        indices = pa.array([i if i is None else i + 1 for i in encoded.indices.to_pylist()])
        parts.append(pa.DictionaryArray.from_arrays(indices.cast(pa.int32()), pa.array(padded)))
    return pa.chunked_array(parts)


@pytest.fixture(scope="module")
def padded(records: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the records of the fleet with unused texts in every text column."""
    folder = tmp_path_factory.mktemp("padded") / "records"
    shutil.copytree(records, folder)
    for path in folder.glob("date=*/*.parquet"):
        table = pq.read_table(path, partitioning=None)
        for name in TEXTS:
            if name in table.column_names and pa.types.is_string(
                table[name].cast(pa.string()).type
            ):
                column = with_unused_texts(table[name].cast(pa.string()))
                table = table.set_column(table.column_names.index(name), name, column)
        pq.write_table(table, path)
        read = pq.read_table(path, partitioning=None)
        assert "0-unused" in read["gpu_serial"].chunk(0).dictionary.to_pylist()
    return folder


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*.csv"))}


@pytest.mark.parametrize("compacted", [False, True])
def test_doctor_ignores_unused_values(
    records: Path,
    padded: Path,
    config: Path,
    tmp_path: Path,
    compacted: bool,
    capsys: pytest.CaptureFixture[str],
) -> None:
    reports: list[dict[str, Any]] = []
    for source in (records, padded):
        folder = tmp_path / source.parent.name
        shutil.copytree(source, folder)
        if compacted:
            assert main(["compact", "--records", str(folder)]) == 0
        capsys.readouterr()
        assert main(["doctor", str(folder), "--config", str(config), "--json"]) == 0
        reports.append(json.loads(capsys.readouterr().out) | {"layout": None})
    assert reports[0] == reports[1]


def test_list_ignores_unused_values(
    records: Path, padded: Path, config: Path, tmp_path: Path
) -> None:
    lists = []
    for name, folder in (("plain", records), ("padded", padded)):
        out = tmp_path / name
        arguments = ["--records", str(folder), "--config", str(config), "--out", str(out)]
        assert main(["score", *arguments, "--model", "builtin:rules", "--at", AT]) == 0
        lists.append(files_of(out))
    assert lists[0]
    assert lists[0] == lists[1]


def test_backtest_ignores_unused_values(
    records: Path, padded: Path, config: Path, tmp_path: Path
) -> None:
    scores = []
    for name, folder in (("plain", records), ("padded", padded)):
        out = tmp_path / name
        arguments = ["--records", str(folder), "--config", str(config), "--out", str(out)]
        options = ["--models", "gbdt", "--strategies", "sliding", "--end", "2025-01-11"]
        assert main(["backtest", *arguments, *options]) == 0
        report = json.loads((out / "report.json").read_text())
        report = {key: report[key] for key in ("methods", "fleet", "records", "gpus")}
        scores.append((report, pq.read_table(out / "scores_sliding.parquet").to_pylist()))
    assert scores[0] == scores[1]
