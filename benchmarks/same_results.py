"""Compares the results of two versions of forewarn: a refactoring must not change any.

    python -m benchmarks.same_results OLD NEW [--keep DIR] [--only CASE,CASE]

OLD and NEW are checkouts (with their `.venv`) or `forewarn` executables. Each case of
`benchmarks/compared_commands.py` runs in an empty folder, once per version, in one process and with
a fixed clock. Then the files in both folders are compared: JSON by value, CSV and Parquet by cell,
archives (`.keras`, `.npz`) by member, others byte by byte. `--keep` stores the results of OLD, so
that the next call runs only NEW. The exit code is 1 if anything differs.

Not compared are

- texts: strings of three or more words (except those of the keys in `_NAMES`), output without
  `--json`, and pages. A text that only one version has is a difference;
- timings, memory, version strings and the random ids of MLflow (`_VOLATILE`), including the folders
  named after them: the name of a predictor has a hash of its files;
- internal files without a documented format (`_INTERNAL`).

The data of `../shared/data` is required.
"""

from __future__ import annotations

import argparse
import csv
import json
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as pq
from benchmarks.compared_commands import CASES
from tqdm import tqdm

MAX_SHOWN = 15  # differences per case
SHOWN_LENGTH = 80  # characters of a value

_NAMES = {"gpu_type", "driver_version", "action", "id", "task", "job", "path"}
# At the top level, or in a stage of a report; deeper down `seconds` can be a result.
_VOLATILE = re.compile(
    r"(\[\d+\]\.?)?(stages\[\d+\]\.)?"
    r"(seconds|cpu_seconds|peak_rss_bytes|policy_version|forewarn_version|run)"
)
_INTERNAL = {".html", ".png", ".out", ".log", ".db", ".runs", ".numbers", ""}
_MISSING = object()

# Runs the commands in one process, so that libraries are imported once.
_RUNNER = """
import contextlib, importlib.metadata, json, sys, time, traceback
(entry,) = importlib.metadata.entry_points(group="console_scripts", name="forewarn")
main, codes = entry.load(), {}
for name, command, now in json.loads(sys.argv[1]):
    time.time_ns = lambda: now
    argv = command.split()
    suffix = "jsonl" if "--json" in argv else "out"
    with open(f"{name}.{suffix}", "w") as out, contextlib.redirect_stdout(out):
        try:
            codes[name] = main(argv)
        except SystemExit as end:
            codes[name] = end.code
        except Exception as error:
            traceback.print_exc()
            codes[name] = type(error).__name__
    print(name, flush=True)
with open("exit_codes.json", "w") as file:
    json.dump(codes, file)
"""


def run_case(version: Path, name: str, folder: Path) -> None:
    """Run the commands of a case with one version in a new folder, with a progress bar."""
    folder = folder.absolute()
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "inputs").mkdir(parents=True)
    steps = CASES[name](folder / "inputs")
    steps_json = json.dumps([(s.name, s.command, pd.Timestamp(s.now).value) for s in steps])
    command = [str(_find_python(version)), "-c", _RUNNER, steps_json]
    with (
        (folder / "stderr.log").open("w") as log,
        tqdm(total=len(steps), desc=f"{version}: {name}", leave=False) as bar,
        subprocess.Popen(
            command, cwd=folder, stdout=subprocess.PIPE, stderr=log, text=True
        ) as process,
    ):
        assert process.stdout is not None
        for line in process.stdout:
            bar.set_postfix_str(line.strip())
            bar.update()
    if process.returncode:
        raise SystemExit(f"{version}: {name} crashed, see {folder / 'stderr.log'}")


def _find_python(version: Path) -> Path:
    python = version / ".venv" / "bin" / "python" if version.is_dir() else version.parent / "python"
    if not python.exists():
        raise SystemExit(f"{python} is missing, expected a checkout with .venv, or an executable")
    return python.absolute()


def folder_differences(old: Path, new: Path) -> Iterator[str]:
    """Yield the differences between the files of two folders, one line each."""
    old_names, new_names = _compared_files(old), _compared_files(new)
    yield from (f"{name}: only in OLD" for name in sorted(old_names - new_names))
    yield from (f"{name}: only in NEW" for name in sorted(new_names - old_names))
    for name in sorted(old_names & new_names):
        if (old / name).read_bytes() != (new / name).read_bytes():
            for difference in _file_differences(old / name, new / name):
                yield f"{name}: {difference}"


def _compared_files(folder: Path) -> set[str]:
    paths = (path for path in folder.rglob("*") if path.is_file())
    names = (path.relative_to(folder) for path in paths if path.suffix not in _INTERNAL)
    return {str(name) for name in names if name.parts[0] not in ("inputs", "mlflow")}


def _file_differences(old: Path, new: Path) -> Iterator[str]:
    if old.suffix == ".parquet":
        yield from _table_differences(old, new)
    elif old.suffix in _READERS:
        yield from value_differences(_READERS[old.suffix](old), _READERS[old.suffix](new))
    else:
        yield "different bytes"


def _members(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def _csv_rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


_READERS: dict[str, Callable[[Path], Any]] = {
    ".json": lambda path: json.loads(path.read_text()),
    ".jsonl": lambda path: [json.loads(line) for line in path.read_text().splitlines()],
    ".csv": _csv_rows,
    ".keras": _members,
    ".npz": _members,
}


def _table_differences(old: Path, new: Path) -> Iterator[str]:
    before, after = (pq.read_table(path, partitioning=None) for path in (old, new))
    types = [{field.name: str(field.type) for field in t.schema} for t in (before, after)]
    yield from value_differences(types[0], types[1])
    for name in types[0].keys() & types[1].keys():
        column, other = before[name].to_pandas(), after[name].to_pandas()
        if not column.equals(other):
            yield from value_differences(column.tolist(), other.tolist(), name)


def value_differences(old: Any, new: Any, path: str = "") -> Iterator[str]:
    """Yield `PATH: OLD -> NEW` for each value that differs and is neither text nor volatile."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in [*old, *(key for key in new if key not in old)]:
            below = f"{path}.{key}".lstrip(".")
            if not _VOLATILE.fullmatch(below):
                value, other = old.get(key, _MISSING), new.get(key, _MISSING)
                yield from value_differences(value, other, below)
    elif isinstance(old, list) and isinstance(new, list):
        for number, (value, other) in enumerate(zip_longest(old, new, fillvalue=_MISSING)):
            yield from value_differences(value, other, f"{path}[{number}]")
    elif not (_are_equal(old, new) or _are_texts(old, new, path)):
        yield f"{path}: {_shown(old)} -> {_shown(new)}"


def _are_equal(old: Any, new: Any) -> bool:
    """Compare two values; NaN equals NaN, and a number never equals a boolean."""
    if old is _MISSING or new is _MISSING or isinstance(old, bool) != isinstance(new, bool):
        return False
    return bool(old == new) or bool(old != old and new != new)


def _are_texts(old: object, new: object, path: str) -> bool:
    key = path.rpartition(".")[2].partition("[")[0]
    return key not in _NAMES and all(isinstance(v, str) and len(v.split()) > 2 for v in (old, new))


def _shown(value: object) -> str:
    text = "(missing)" if value is _MISSING else repr(value)
    return text if len(text) <= SHOWN_LENGTH else f"{text[:SHOWN_LENGTH]}..."


def _report(name: str, old: Path, new: Path) -> bool:
    """Print whether a case differs, and where."""
    differences = list(folder_differences(old, new))
    verdict = f"{len(differences)} differences" if differences else "same"
    print(f"{name:12}{len(_compared_files(old)):5} files   {verdict}")
    for difference in differences[:MAX_SHOWN]:
        print(f"    {difference}")
    if len(differences) > MAX_SHOWN:
        print(f"    and {len(differences) - MAX_SHOWN} more")
    sys.stdout.flush()
    return bool(differences)


def main() -> int:
    """Run both versions and print a line per case; return 1 if a case differs."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("old", type=Path, help="checkout or executable")
    parser.add_argument("new", type=Path, help="checkout or executable")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="results of OLD, used if present")
    parser.add_argument("--only", metavar="CASES", help=f"among {','.join(CASES)}")
    options = parser.parse_args()
    names = options.only.split(",") if options.only else list(CASES)
    if unknown := set(names) - set(CASES):
        parser.error(f"--only names {', '.join(unknown)}, expected {', '.join(CASES)}")
    results = Path(tempfile.mkdtemp(prefix="same_results-"))
    n_differing = 0
    for name in names:
        old, new = (options.keep or results / "old") / name, results / "new" / name
        if not (old / "exit_codes.json").exists():
            run_case(options.old, name, old)
        run_case(options.new, name, new)
        n_differing += _report(name, old, new)
    print(f"{n_differing} of {len(names)} cases differ; the files of NEW are in {results / 'new'}")
    return 1 if n_differing else 0


if __name__ == "__main__":
    sys.exit(main())
