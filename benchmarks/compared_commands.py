"""The test cases of `benchmarks/same_results.py`.

A case prepares files in `inputs/` of an empty folder, and returns the commands to run there, one
after another.
"""

from __future__ import annotations

import importlib.util
import shutil
import tarfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

__all__ = ["CASES", "Case", "Step"]

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT.parent / "shared" / "data"
REAL_DATA = ROOT / "tests" / "real_data"
NOW = "2026-11-25T14:00Z"  # after most captures
FAULTS = "loader machine collective deadlock sigstop dstate sigkill exception slow jitter none"
TREES = '[ensembles]\nparallel = ["gbdt"]\ncascade = [["gbdt", 0.05]]\n'


@dataclass(frozen=True, slots=True)
class Step:
    """A command, and the time of the fixed clock while it runs."""

    name: str
    command: str
    now: str = NOW


Case = Callable[[Path], list[Step]]


def nodes(inputs: Path) -> list[Step]:
    """Evaluate all tables of pair tests."""
    for path in sorted((DATA / "nccl_pairs").glob("sim_*.csv")):
        bandwidths = pd.read_csv(path)
        table = pd.DataFrame({"round": range(1, len(bandwidths) + 1)})
        table["nodes"] = bandwidths["nodes"].str.replace(",", " ")
        table["passed"] = bandwidths["avg_bus_bw_GBs"].notna()
        table["seconds"] = 100.0 / bandwidths["avg_bus_bw_GBs"]
        table.to_csv(inputs / path.name, index=False)
    tables = sorted([*inputs.iterdir(), *(DATA / "nccl_pairs").glob("res_*.csv")])
    return [Step(path.stem, f"diagnose nodes --json --results {path}") for path in tables]


def jobs(inputs: Path) -> list[Step]:
    """Diagnose all captures of jobs, and a simulated job for each fault."""
    for archive in sorted((ROOT / "tests" / "gloo_jobs" / "captures").glob("*.tar.xz")):
        with tarfile.open(archive) as opened:
            opened.extractall(inputs / archive.name.removesuffix(".tar.xz"), filter="data")
    for dump in sorted((DATA / "flight_recorder").glob("*/*_*")):  # JSON and pickled: two jobs
        flight = inputs / f"{dump.parent.name}{dump.suffix}" / "flight"
        flight.mkdir(parents=True, exist_ok=True)
        shutil.copy(dump, flight)
    truth = pd.read_csv(DATA / "job_cases" / "truth.csv", dtype=str, na_filter=False)
    moments = dict(zip(truth["case"], truth["at"], strict=True))
    steps = []
    for folder in (*_folders(inputs), *_folders(DATA / "job_cases")):
        at = f"--at {moments[folder.name]}" if moments.get(folder.name) else ""
        steps.append(Step(folder.name, f"diagnose run --json --job {folder} {at}"))
    for fault in FAULTS.split():
        made = f"simulate job --out job-{fault} --ranks 8 --fault {fault} --seed 2"
        steps.append(Step(f"job-{fault}-made", made))
        steps.append(Step(f"job-{fault}", f"diagnose run --json --job job-{fault}"))
    return steps


def telemetry(inputs: Path) -> list[Step]:
    """Ingest all cases and captures of telemetry, and respond to their events."""
    _captures_as_hosts(inputs / "captures" / "raw")
    raws = [*sorted((DATA / "telemetry_cases").glob("*/raw")), inputs / "captures" / "raw"]
    case = DATA / "telemetry_cases" / "cmdb-and-tickets"
    steps = []
    for raw in raws:
        name = raw.parent.name
        steps.append(Step(f"{name}-ingest", f"ingest --raw {raw} --out {name}"))
        steps.append(Step(f"{name}-doctor", f"doctor {name} --json"))
    for table in sorted(case.glob("*.csv")):
        option = f"--{'repairs' if 't' in table.stem else 'cmdb'} {table}"
        command = f"ingest --raw {case / 'raw'} {option} --out with-{table.stem}"
        steps.append(Step(f"with-{table.stem}", command))
    steps += [Step(f"all-{raw.parent.name}", f"ingest --raw {raw} --out all") for raw in raws[:-1]]
    config = _config(
        inputs / "respond.toml", '[records]\ninterval = "20min"\n[respond]\nrecords = "../all"\n'
    )
    moments = [f"2026-11-25T{clock}Z" for clock in ("10:30", "10:50", "11:10", "12:00", "14:00")]
    return [
        *steps,
        *_responses(config, moments),
        Step("replay", f"policy replay --json --records all {config}"),
    ]


def tasks(_: Path) -> list[Step]:
    """Run detection on simulated tasks and on all captures of tasks."""
    metrics, captures = "--json --metrics pulls/pulls --model detector", DATA / "machine_metrics"
    steps = {
        "simulate": "simulate incidents --out pulls --faulty 6 --healthy 18 --seed 1",
        "fit": f"detect fit {metrics}",
        "run": f"detect run {metrics} --state state",
        "run_again": f"detect run {metrics} --state state",
        "metrics": "detect metrics --json --model detector",
    }
    for name, fitted, judged in (("smd", "smd/train", "smd/pulls"), ("exathlon",) * 3):
        config = f"--json --config {captures / name / 'detect.toml'} --model {name}"
        steps[f"{name}_fit"] = f"detect fit {config} --metrics {captures / fitted}"
        steps[f"{name}_run"] = f"detect run {config} --metrics {captures / judged}"
    return _steps(steps)


def operations(_: Path) -> list[Step]:
    """Simulate a week of responses, and the jobs of the diagnosis studies."""
    return _steps(
        {
            "response": "study response --machines 40 --days 7 --controls 0.5 --json",
            "diagnosis": "study diagnosis --jobs 4 --ranks 8 --json",
            "false_hangs": "study false-hangs --days 1 --ranks 8 --json",
        }
    )


def demo(_: Path) -> list[Step]:
    """Run a small demo."""
    return [Step("demo", "demo --out demo --gpus 100 --days 30 --seed 1")]


def fleet(inputs: Path) -> list[Step]:
    """Run a simulated fleet from records to lists, replays and responses; compact in between."""
    models = '[ensembles]\nparallel = ["cnn", "gbdt"]\ncascade = [["cnn", 0.05], ["gbdt", 0.02]]\n'
    config = _config(inputs / "small.toml", models)
    pools = _config(
        inputs / "pools.toml",
        '[respond]\nrefill = "3d"\n[respond.pools.gpu]\nmachines = 1\ncause = 1\n',
    )
    sources = 'lists = "../lists"\nrecords = "../fleet/records"\n'
    respond = _config(inputs / "respond.toml", f"[respond]\n{sources}")
    (inputs / "mild.toml").write_text('[xids.119]\nat_most = "tell"\n')
    records, span = "--records fleet/records", "--strategies sliding,variable --start 2025-01-24"
    steps = {
        "simulate": "simulate fleet --out fleet --gpus 120 --days 31 --seed 3",
        "doctor": "doctor fleet/records --json",
        "backtest": f"backtest {records} {config} --out backtest --models cnn,gbdt,linear {span}",
        "train": f"train {records} {config} --at 2025-01-28 --model model",
        "rules_20": f"score {records} --out rules --model builtin:rules --at 2025-01-20",
        "rules_28": f"score {records} --out rules --model builtin:rules --at 2025-01-28",
        "list_28": f"score {records} --out lists --model model --at 2025-01-28",
        "list_30": f"score {records} --out lists --model model --at 2025-01-30",
        "review": "review --at-risk lists --failures fleet/truth.csv --json",
        "avoid": "avoid --at-risk lists --at 2025-01-30T01:00 --json",
        "diff": "policy diff default inputs/mild.toml --json",
        "replay": f"policy replay --json {records} --policy default",
        "replay_lists": f"policy replay --json {records} --at-risk lists --policy inputs/mild.toml",
        "replay_pools": f"policy replay --json {records} --at-risk rules {pools}",
        "compact": f"compact {records} --json",
        "doctor_compacted": "doctor fleet/records --json",
        "list_compacted": f"score {records} --out compacted --model model --at 2025-01-30",
        "start_from": f"train {records} {pools} --at 2025-01-30 --model model2 --start-from model",
        "retrain": f"retrain {records} {config} --at 2025-01-30 --json",
    }
    moments = [f"2025-01-{day}T{hour}:00Z" for day in (28, 30) for hour in ("01", "02", "12")]
    return [*_steps(steps), *_responses(respond, moments)]


def drives(inputs: Path) -> list[Step]:
    """Run real drives, with real failures, from records to a reviewed list."""
    table = pd.read_parquet(DATA / "drives" / "ST31500541AS.parquet")
    chosen = table[table["serial"].isin(sorted(table["serial"].unique())[:300])]
    chosen.to_parquet(inputs / "spans.parquet", index=False)
    _real_data("drives_records").write_records(inputs / "spans.parquet", inputs / "records")
    config = _config(inputs / "drives.toml", (REAL_DATA / "drives.toml").read_text() + TREES)
    span = "--strategies sliding,expanding --start 2014-10-01 --end 2014-12-01"
    records = "--records inputs/records"
    return _steps(
        {
            "doctor": f"doctor inputs/records {config} --json",
            "backtest": f"backtest {records} {config} --out backtest {span}",
            "train": f"train {records} {config} --at 2014-12-01 --model model",
            "score": f"score {records} --model model --at 2014-12-15 --out lists",
            "review": "review --json --at-risk lists --failures inputs/records/failures.parquet",
        }
    )


def machines(inputs: Path) -> list[Step]:
    """Run real machines, with columns other than those of GPUs, from records to a list."""
    _real_data("azure_records").write_records(DATA / "azure_pdm", inputs / "records")
    records, config = "--records inputs/records", f"--config {REAL_DATA / 'azure.toml'}"
    return _steps(
        {
            "doctor": f"doctor inputs/records {config} --json",
            "train": f"train {records} {config} --at 2015-03-01 --model model",
            "score": f"score {records} --model model --at 2015-03-03 --out lists",
        }
    )


CASES: Mapping[str, Case] = {
    case.__name__: case
    for case in (nodes, jobs, telemetry, tasks, operations, demo, fleet, drives, machines)
}


def _steps(commands: Mapping[str, str]) -> list[Step]:
    return [Step(name, command) for name, command in commands.items()]


def _config(path: Path, text: str) -> str:
    """Write a configuration, and return the option that names it."""
    path.write_text(text)
    return f"--config inputs/{path.name}"


def _responses(config: str, moments: Iterable[str]) -> list[Step]:
    """Return for each time one run of the responder and one listing of incidents."""
    steps = []
    for number, now in enumerate(moments):
        ledger = "" if number else "--new-ledger"
        steps.append(Step(f"respond_{number}", f"respond --once --json {config} {ledger}", now))
        steps.append(Step(f"incidents_{number}", f"incidents --all --json {config}", now))
    return steps


def _folders(parent: Path) -> list[Path]:
    return sorted(path for path in parent.iterdir() if path.is_dir())


def _real_data(name: str) -> Any:
    """Import a script of `tests/real_data`, which is not a package."""
    spec = importlib.util.spec_from_file_location(name, REAL_DATA / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _captures_as_hosts(raw: Path) -> None:
    """Lay out captures of nvidia-smi and kernel logs like files dropped by hosts."""
    documents = [*DATA.glob("nvidia_smi_xml/*.xml"), *DATA.glob("kernel_logs/*.log")]
    texts = {path.name: path.read_text(errors="replace") for path in documents}
    for path in DATA.glob("nvidia_smi_captures/*.txt"):
        parts = path.read_text(errors="replace").split(":: query-gpu (csv")[1:]
        for number, part in enumerate(parts):
            texts[f"{path.stem}-{number}.csv"] = part.split("#" * 80)[1]
    for name, text in texts.items():
        host, _, kind = name.rpartition(".")
        file = raw / host / f"{'kernel' if kind == 'log' else 'smi'}_2026-11-25T10:00:00.{kind}"
        file.parent.mkdir(parents=True)
        file.write_text(text)
