"""Time and memory of reading the logs of a job, compared with iterating their lines in Python.

    python benchmarks/log_reading.py [--short] [--forms files console]

`files`: one log a rank of 1,024 ranks, 200 MB in the form of Megatron-LM; `console`: 1 GB of the
same lines in one file with srun's labels. Each is read from the page cache. The median of three
runs of `for line in file` is taken in the same process, and of three diagnoses after a small one,
which loads compiled code. CPU seconds are printed as well, because other load on the machine hardly
affects them. The same is measured of the progress that `forewarn lost` reads. The peak memory is
that of the process while it diagnoses (Linux).
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

from forewarn.pipelines.diagnosis.diagnose_job import diagnose
from forewarn.pipelines.recovery.logged_progress import read_progress

BEGIN = datetime(2026, 3, 1, tzinfo=UTC)
RANKS, STEPS, PER_MACHINE = 1024, 550, 8
CONSOLE_BYTES = 1_000_000_000
FAILED, ERROR = 5, "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.25 GiB."


def step_line(step: int) -> str:
    """Return the line of a step, which takes five seconds."""
    time_text = f"{BEGIN + timedelta(seconds=5 * step):%Y-%m-%d %H:%M:%S}"
    return (
        f" [{time_text}] iteration {step:8d}/  500000 | consumed samples: {step * 512:12d} | "
        f"elapsed time per iteration (ms): {5000 + step % 97}.{step % 10} | throughput per GPU "
        f"(TFLOP/s/GPU): 41{step % 10}.{step % 7} | learning rate: 3.000000E-04 | global batch "
        f"size:   512 | lm loss: 2.{step % 999983:06d}E+00 | loss scale: 1.0 | grad norm: "
        f"0.{step % 1000:03d} | number of skipped iterations:   0 | number of nan iterations:   0 |"
    )


def write_files(folder: Path, ranks: int) -> None:
    """Write a log for each rank; one ends with an error."""
    text = "".join(f"{step_line(step)}\n" for step in range(1, STEPS + 1))
    for rank in range(ranks):
        (folder / f"{rank}.log").write_text(text + (f"{ERROR}\n" if rank == FAILED else ""))


def write_console(folder: Path, ranks: int, size: int) -> None:
    """Write the lines of all ranks into one file, step by step, with srun's labels."""
    width, written, step = len(str(ranks - 1)), 0, 0
    with (folder / "slurm-4242.out").open("w") as file:
        while written < size:
            step += 1
            line = step_line(step)
            written += file.write("".join(f"{r:0{width}d}: {line}\n" for r in range(ranks)))
        file.write(f"{FAILED:0{width}d}: {ERROR}\n")


def files_of(folder: Path) -> Iterator[Path]:
    """Yield the logs below a folder."""
    yield from (path for path in folder.rglob("*") if path.is_file())


def iterate(folder: Path) -> None:
    """Iterate the lines of all logs."""
    for path in files_of(folder):
        with path.open("rb") as file:
            for _ in file:
                pass


def seconds(work: Callable[[], object], times: int) -> tuple[float, float]:
    """Return the medians of wall and CPU seconds."""
    runs = []
    for _ in range(times):
        wall, cpu = time.perf_counter(), time.process_time()
        work()
        runs.append((time.perf_counter() - wall, time.process_time() - cpu))
    return statistics.median(run[0] for run in runs), statistics.median(run[1] for run in runs)


def write_job(job: Path, form: str, ranks: int, size: int) -> None:
    """Write a job in one of the forms."""
    (job / "logs").mkdir()
    rows = (f"{rank},node-{rank // PER_MACHINE}\n" for rank in range(ranks))
    (job / "ranks.csv").write_text("rank,machine\n" + "".join(rows))
    if form == "files":
        write_files(job / "logs", ranks)
    else:
        write_console(job / "logs", ranks, size)


def forget_peak() -> None:
    """Let the kernel forget the peak memory of this process."""
    Path("/proc/self/clear_refs").write_text("5")


def peak_memory() -> float:
    """Return the peak memory of this process since it was forgotten, MiB."""
    status = Path("/proc/self/status").read_text()
    [line] = (line for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) / 1024


def measure(form: str, ranks: int, size: int) -> None:
    """Write a job, iterate its lines, diagnose it, and print the cost."""
    with tempfile.TemporaryDirectory() as scratch, tempfile.TemporaryDirectory() as small:
        job = Path(scratch)
        write_job(job, form, ranks, size)
        write_job(Path(small), form, 2, 100_000)
        diagnose(Path(small))
        total = sum(path.stat().st_size for path in files_of(job / "logs"))
        iterate(job / "logs")  # fills the page cache
        plain, plain_cpu = seconds(lambda: iterate(job / "logs"), 3)
        forget_peak()
        wall, cpu = seconds(lambda: diagnose(job), 3)
        memory = peak_memory()
        verdict = diagnose(job).diagnosis
        read_progress(Path(small))
        progress, progress_cpu = seconds(lambda: read_progress(job), 3)
    print(
        f"{form}: {total / 1e6:.0f} MB of {ranks} ranks: lines iterated in {plain:.2f} s (CPU "
        f"{plain_cpu:.2f}), diagnosed in {wall:.2f} s (CPU {cpu:.2f}): {wall / plain:.1f} x the "
        f"time, {cpu / plain_cpu:.1f} x the CPU, peak {memory:.0f} MiB; "
        f"kind {verdict.kind}, rank {verdict.rank} (true: {FAILED}); progress read in "
        f"{progress:.2f} s (CPU {progress_cpu:.2f}): {progress_cpu / plain_cpu:.1f} x the CPU",
        flush=True,
    )


def main() -> None:
    """Measure the forms."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--short", action="store_true", help="64 ranks, 20 MB")
    parser.add_argument("--forms", nargs="+", default=("files", "console"))
    options = parser.parse_args()
    for form in options.forms:
        measure(
            form, 64 if options.short else RANKS, 20_000_000 if options.short else CONSOLE_BYTES
        )


if __name__ == "__main__":
    main()
