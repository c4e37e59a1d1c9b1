"""Results of checks as Parquet files, by date and inspection."""

from __future__ import annotations

import datetime as dt
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from forewarn.features.inspection.check_results import RESULTS, CheckResultsError, check_results
from forewarn.features.inspection.check_table import CheckTable
from forewarn.features.time_units import SECOND
from forewarn.pipelines.storage.files.atomic_files import fsync, replacing
from forewarn.pipelines.storage.files.file_names import arrow_path, safe_file_name
from forewarn.pipelines.storage.files.regular_files import matching_paths
from forewarn.pipelines.storage.records.parquet_files import read_parquet

__all__ = ["nagios_result", "read_results", "result_lines", "results_table", "write_results"]


def results_table(rows: Sequence[Mapping[str, Any]], source: object) -> pa.Table:
    """Return rows as a checked table; times are nanoseconds since 1970 UTC.

    Raises
    ------
    CheckResultsError
        If a value has the wrong type or is not valid.
    """
    columns = {}
    for column in RESULTS:
        try:
            columns[column.name] = pa.array([row.get(column.name) for row in rows], column.type)
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as error:
            detail = str(error).splitlines()[0][:100]
            raise CheckResultsError(
                f"{source}: column `{column.name}` is not {column.type} ({detail})."
            ) from None
    return check_results(pa.table(columns), source)


def write_results(rows: Sequence[Mapping[str, Any]], folder: Path) -> list[Path]:
    """Write the results of one inspection: `date=YYYY-MM-DD/MACHINE.RUN.parquet` for each date.

    Files of the same inspection are replaced.

    Parameters
    ----------
    rows : sequence of mapping
        All results so far.
    folder : Path
    """
    by_file: dict[Path, list[Mapping[str, Any]]] = defaultdict(list)
    for row in rows:
        date = dt.datetime.fromtimestamp(row["timestamp"] // SECOND, dt.UTC).date()
        name = f"{safe_file_name(row['machine'])}.{safe_file_name(row['run'])}.parquet"
        by_file[folder / f"date={date}" / name].append(row)
    for path, part in by_file.items():
        with replacing(path) as temporary:
            pq.write_table(results_table(part, path), arrow_path(temporary))
            fsync(temporary)
        fsync(path.parent)
    return list(by_file)


def read_results(path: Path) -> pa.Table:
    """Return the results of a file or of a folder of inspections.

    Raises
    ------
    CheckResultsError
        If there is no file, or a file has other columns or values.
    """
    files = [path] if path.is_file() else matching_paths(path, "date=*/[!.]*.parquet")
    if not files:
        raise CheckResultsError(f"{path}: has no results, expected date=*/*.parquet.")
    return pa.concat_tables(check_results(read_parquet(file), file) for file in files)


def result_lines(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield what is not ok, why checks did not run, and a line of counts.

    Parameters
    ----------
    rows : sequence of mapping
        Results of one machine.
    """
    status_of = {row["check"]: row["status"] for row in rows}
    reasons: Counter[str] = Counter()
    for row in {(r["check"], r["slot"], r["status"], r["text"]): r for r in rows}.values():
        if row["status"] == "not_run":
            reasons[row["text"]] += 1
        elif row["status"] != "ok":
            status_of[row["check"]] = row["status"]
            part = f" {row['slot']}" if row["slot"] else ""
            yield f"{row['check']}{part}: {row['status']}: {row['text']}"
    for reason, count in reasons.most_common():
        yield f"not run: {reason} ({count} {'check' if count == 1 else 'checks'})"
    counts = Counter(status.replace("_", " ") for status in status_of.values())
    shown = ", ".join(f"{count} {status}" for status, count in counts.most_common())
    yield f"{rows[0]['machine']}: {len(status_of)} checks: {shown}"


def nagios_result(
    rows: Sequence[Mapping[str, Any]], checks: Mapping[str, CheckTable]
) -> tuple[int, str]:
    """Return the exit code of all results as Nagios defines it, and one line.

    Parameters
    ----------
    rows : sequence of mapping
        Results of one machine.
    checks : mapping of str to CheckTable
        A failure of level `note` is a warning, any other is critical.
    """
    codes = {"ok": 0, "not_run": 0, "degraded": 1, "timeout": 2, "failed": 2, "blind": 0}
    marked: list[tuple[int, str]] = []
    for row in rows:
        code = codes[row["status"]]
        if code == 2 and checks[row["check"]].level == "note":
            code = 1
        part = f" {row['slot']}" if row["slot"] else ""
        marked.append((code, f"{row['check']}{part}: {row['status']}: {row['text']}"))
    if not any(row["status"] not in ("not_run", "blind") for row in rows):
        return 3, "no check has a result"
    worst = max(code for code, _ in marked)
    texts = [text for code, text in marked if code == worst]
    return worst, f"{len(rows)} values ok" if worst == 0 else "; ".join(dict.fromkeys(texts))
