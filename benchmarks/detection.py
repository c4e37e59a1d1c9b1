"""Time and memory of `forewarn detect run` on pulls of 15 minutes at one sample a second.

    python benchmarks/detection.py [--short] [--plot FILE]

The time of a pull is measured from outside the process, reading included: the difference between a
call with several pulls and one with a single pull, as the median of several such pairs. Loops are
compiled in an earlier call. The pulls are healthy, so all seven metrics are examined, and the joint
score is computed. CPU seconds are printed as well, because other load on the machine hardly affects
them.
The same run then measures the stages of a pull, plain numpy summing all pairwise distances, and
Keras predicting the same windows. Weights are random; they cost as much as trained ones.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from forewarn.evaluation.simulation.tasks.task_simulator import SimulatedTask, healthy_task
from forewarn.features.array_types import BoolArray, Float32Array, Float64Array
from forewarn.models.detection.baseline_scoring import score_against_baseline
from forewarn.models.detection.continuity import continuity_levels
from forewarn.models.detection.denoiser import HIDDEN, LATENT, LstmVae
from forewarn.models.detection.detection_rules import DetectionRules
from forewarn.models.detection.detector import Detector, MetricModel
from forewarn.models.detection.detector_file import StoredDetector, load_detector, save_detector
from forewarn.models.detection.healthy_spread import HealthySpread
from forewarn.models.detection.machine_baseline import MachineBaseline
from forewarn.models.detection.pairwise_distances import distance_sums
from forewarn.models.detection.peer_deviation import peer_deviations
from forewarn.models.detection.threshold import Threshold
from forewarn.models.detection.windows import Windows
from forewarn.pipelines.config.settings import Settings
from forewarn.pipelines.detection.task_metrics import open_pull
from forewarn.pipelines.sandbox.simulate_tasks import metrics_table

SECONDS, INTERVAL, WINDOW = 900, 1_000_000_000, 8
BEGIN = np.datetime64("2025-01-01", "ns")
COMMAND = "import sys; from forewarn.pipelines.cli.main import main; sys.exit(main())"
NEVER = Threshold(base=20.0, slope=0.0, margin=0.0, tail=0.1)
EASY = Threshold(base=float(np.log(3.0)), slope=0.0, margin=0.0, tail=0.1)


def _detector(folder: Path, names: list[str] | None = None) -> None:
    """Write a detector that identifies no machine, except on the metrics `names`."""
    models = []
    for metric in Settings().detection.metrics:
        usual = HealthySpread(0.02, 0.3, 0.1)
        threshold = EASY if names and metric.name in names else NEVER
        models.append(MetricModel((metric.limits,), None, usual, threshold))
    folder.mkdir(parents=True, exist_ok=True)
    detector = Detector(DetectionRules(), models, "gpu_duty_cycle", joint=NEVER, joint_names=True)
    save_detector(StoredDetector(detector, INTERVAL), folder)


def _denoiser() -> LstmVae:
    """Return a denoiser of mode `minder`."""
    generator = np.random.default_rng(0)
    shapes = {"encoder_kernel": (1, 16), "encoder_recurrent": (HIDDEN, 16), "encoder_bias": (16,)}
    shapes |= {"mean_kernel": (HIDDEN, LATENT), "mean_bias": (LATENT,)}
    shapes |= {"decoder_kernel": (LATENT, 16), "decoder_recurrent": (HIDDEN, 16)}
    shapes |= {"decoder_bias": (16,), "output_kernel": (HIDDEN, 1), "output_bias": (1,)}
    weights = {n: generator.normal(0, 0.5, s).astype(np.float32) for n, s in shapes.items()}
    return LstmVae(WINDOW, weights)


def _pull(n: int, folder: Path, seed: int, *, faulty: bool = False) -> None:
    task = healthy_task(np.random.default_rng(seed), n, SECONDS)
    if faulty:
        task.samples["pfc_tx_packet_rate"][n // 2, 300:] += 9000.0
    names = [metric.name for metric in Settings().detection.metrics]
    samples = {name: task.samples[name] for name in names}
    task = SimulatedTask(task.machines, task.group, samples, ())
    folder.mkdir(parents=True)
    pq.write_table(metrics_table(task, BEGIN), folder / "part-0.parquet", compression="zstd")


def _timed(metrics: Path, model: Path, *, faulty: bool) -> Float64Array:
    """Run the command on a folder of pulls in its own process; return wall and CPU seconds.

    The result is checked: a fault in the first metric ends the search, and no fault does not.
    """
    options = ["detect", "run", "--metrics", str(metrics), "--model", str(model), "--json"]
    started, cpu = time.perf_counter(), _cpu_of_children()
    done = subprocess.run(
        [sys.executable, "-c", COMMAND, *options], check=True, capture_output=True
    )
    seconds = time.perf_counter() - started
    scores = [json.loads(line)["score"] for line in done.stdout.splitlines()]
    assert all((score is not None and score > 2.0) == faulty for score in scores), scores
    return np.array([seconds, _cpu_of_children() - cpu])


def _cpu_of_children() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _peak_mib() -> float:
    """Return the peak memory of any process started here."""
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024


def _from_outside(
    folder: Path, model: Path, n: int, pairs: int, max_pulls: int, *, faulty: bool
) -> float:
    """Print and return the seconds of one pull: the difference between several and one."""
    name = f"{'faulty' if faulty else 'healthy'}-{n}"
    more = min(max(3000 // n, 2), max_pulls)  # start-up time varies more than a short pull takes
    for number in range(more + 1):
        _pull(n, folder / f"{name}-more" / f"task=t{number}", number, faulty=faulty)
    _pull(n, folder / f"{name}-1" / "task=t0", 0, faulty=faulty)
    calls = [
        [_timed(folder / f"{name}-{which}", model, faulty=faulty) for which in ("1", "more")]
        for _ in range(pairs)
    ]
    single, several = np.median(np.array(calls), axis=0)
    wall, cpu = np.median([(many - single_pull) / more for single_pull, many in calls], axis=0)
    print(
        f"{n:>6} machines, {'a fault in the first metric' if faulty else 'nothing wrong':<28} "
        f"{wall:6.2f} s a pull, {cpu:6.2f} s of CPU; {single[0]:5.2f} s with the start"
        f"  (median of {pairs} pairs, {more} pulls over {several[0]:.1f} s)"
    )
    return float(wall)


def _compile(folder: Path, model: Path) -> None:
    """Compile the code that is not cached yet, and print the time of that and of a start."""
    _pull(4, folder / "first" / "task=t0", 0)
    first = _timed(folder / "first", model, faulty=False)
    again = _timed(folder / "first", model, faulty=False)
    print(f"a first call takes {first[0]:.1f} s, a second {again[0]:.1f} s: the rest is compiling")


def _median(work: Callable[[], Any], runs: int) -> float:
    seconds = []
    for _ in range(runs):
        started = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - started)
    return statistics.median(seconds)


def _stages(folder: Path, model: Path, runs: int) -> None:
    """Print the time of each stage of a pull, for one metric."""
    stored = load_detector(model)
    first = stored.detector.metrics[1]
    pull = open_pull(folder, INTERVAL)
    raw = pull.series(first.name)
    assert raw is not None
    series, denoiser = first.limits[0].scale(raw)[None], _denoiser()
    positions = np.arange(series.shape[2] - WINDOW + 1)
    windows = Windows.from_series(series, WINDOW, positions)
    present = np.ones((len(windows), series.shape[1]), dtype=bool)
    deviations = peer_deviations(windows, present, pull.groups)
    past, number = MachineBaseline.empty(pull.grid.machines), np.arange(len(windows))
    rules = stored.detector.rules
    scores, _ = score_against_baseline(
        deviations, deviations, number, pull.groups, rules.baseline, first.healthy, past
    )
    turned = np.ascontiguousarray(scores.T)
    parts: dict[str, Callable[[], Any]] = {
        "machines and times (once)": lambda: open_pull(folder, INTERVAL),
        "read one metric to the grid": lambda: pull.series(first.name),
        "denoise (mode minder)": lambda: denoiser.reconstruct(series),
        "compare with the peers": lambda: peer_deviations(windows, present, pull.groups),
        "compare with the baseline": lambda: score_against_baseline(
            deviations, deviations, number, pull.groups, rules.baseline, first.healthy, past
        ),
        "continuity": lambda: continuity_levels(turned, rules.continuity, rules.continuity_share),
    }
    for name, work in parts.items():
        print(f"  {name:<26} {_median(work, runs) * 1000:8.1f} ms")
    _peers(series, denoiser, windows.apart(), present, runs)


def _stream(folder: Path, model: Path, runs: int) -> None:
    """Print the cost of a call ten seconds after another one, without reading."""
    detector = load_detector(model).detector
    task = open_pull(folder, INTERVAL).task()
    names = [metric.name for metric in Settings().detection.metrics]
    read = {name: values for name in names if (values := task.series(name)) is not None}
    before = {name: values[:, :-10] for name, values in read.items()}
    earlier = replace(task, n_ticks=task.n_ticks - 10, series=before.get)
    later = replace(task, series=read.get)
    _, baselines = detector.find(earlier)
    whole = _median(lambda: detector.find(later, baselines), runs)
    new = _median(lambda: detector.find(later, baselines, incremental=True), runs)
    print(f"  all metrics, ten seconds later: {whole:.2f} s as a whole, {new:.2f} s in a stream")
    alone = replace(detector, joint=None)
    ratios = [
        _cpu(lambda: detector.find(later)) / _cpu(lambda: alone.find(later)) for _ in range(3)
    ]
    print(f"  CPU time with the joint score: {statistics.median(ratios):.2f} of that without")


def _cpu(work: Callable[[], Any]) -> float:
    started = time.process_time()
    work()
    return time.process_time() - started


def _peers(
    series: Float32Array, denoiser: LstmVae, windows: Float32Array, present: BoolArray, runs: int
) -> None:
    """Print what numpy and Keras need for the same computations."""
    few = slice(0, 8)
    ours = _median(lambda: distance_sums(windows[few], present[few]), runs)

    def plain() -> None:
        for window in windows[few]:
            squares = sum((row[:, None] - row[None, :]) ** 2 for row in window)
            np.sqrt(squares).sum(axis=1)

    theirs = _median(plain, 1)
    print(f"  sums of all distances, 8 windows: {ours * 1000:.1f} ms, ", end="")
    print(f"numpy {theirs * 1000:.1f} ms, {theirs / ours:.1f} times")
    n_windows = windows.shape[0] * windows.shape[2]
    rate = n_windows / _median(lambda: denoiser.reconstruct(series), runs)
    print(f"  denoising: {rate / 1e6:.2f} million windows/s, Keras {_keras(series) / 1e6:.3f}")


def _keras(series: Float32Array) -> float:
    """Return the windows per second that Keras predicts."""
    from forewarn.models.detection.fitting.denoiser_training import build_vae
    from forewarn.models.tensorflow_runtime import fresh_keras

    encoder, decoder = build_vae(fresh_keras(0), WINDOW, 1)
    positions = np.arange(series.shape[2] - WINDOW + 1)
    windows = Windows.from_series(series[:, :50], WINDOW, positions).apart()
    some = windows.transpose(0, 2, 1).reshape(-1, WINDOW, 1)
    some = np.nan_to_num(some)
    decoder.predict(encoder.predict(some[:4096], verbose=0, batch_size=4096)[0], verbose=0)
    started = time.perf_counter()
    latent = encoder.predict(some, verbose=0, batch_size=4096)[0]
    decoder.predict(latent, verbose=0, batch_size=4096)
    return len(some) / (time.perf_counter() - started)


def _plot(seconds: dict[int, float], path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.0, 3.6), layout="constrained")
    axes = figure.subplots()
    axes.loglog(list(seconds), list(seconds.values()), "o-", label="a pull, all metrics")
    first, last = min(seconds), max(seconds)
    axes.loglog([first, last], [seconds[last] * first / last, seconds[last]], ":", label="linear")
    axes.set_xlabel("machines")
    axes.set_ylabel("seconds")
    axes.legend()
    figure.savefig(path, dpi=110)


def main() -> None:
    """Simulate pulls in a temporary folder and measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--short", action="store_true", help="a small task, once")
    parser.add_argument("--plot", type=Path, help="plot the time over the number of machines")
    args = parser.parse_args()
    sizes, runs, pulls = (
        ([100], 1, 4) if args.short else ([100, 300, 1000, 1500, 3000, 10_000], 3, 20)
    )
    with tempfile.TemporaryDirectory() as written:
        folder, model = Path(written), Path(written) / "model"
        _detector(model)
        print(f"{os.cpu_count()} cores, load average {os.getloadavg()[0]:.1f} at the start")
        _compile(folder, model)
        seconds = {}
        for n in sizes:
            seconds[n] = _from_outside(
                folder, model, n, runs if n < 3000 else 1, pulls, faulty=False
            )
            print(f"{'':16} peak memory {_peak_mib():.0f} MiB")
        middle = 100 if args.short else 1500
        easy = folder / "easy"
        _detector(easy, ["pfc_tx_packet_rate"])
        _from_outside(folder, easy, middle, runs, pulls, faulty=True)
        print(f"{middle} machines, one metric of seven:")
        pull = folder / f"healthy-{middle}-1" / "task=t0"
        _stages(pull, model, runs)
        _stream(pull, model, runs)
    print(f"load average {os.getloadavg()[0]:.1f} at the end")
    if args.plot:
        _plot(seconds, args.plot)


if __name__ == "__main__":
    main()
