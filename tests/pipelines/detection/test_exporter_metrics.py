"""Series of node_exporter and dcgm-exporter on a real Prometheus become the detector's metrics."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pandas as pd
import pytest

from forewarn.pipelines.cli.main import main

HOSTS = ("gn01", "gn02", "gn03")
STEP, N = 15, 61  # seconds between scrapes, and scrapes
IDLE_CPU = 0.75
RESET = ("gn02", 30)  # the scrape before which a machine was restarted


def counted(host: str, tick: int, per_second: float) -> float:
    """Return a counter that starts again after a restart."""
    since = RESET[1] if host == RESET[0] and tick >= RESET[1] else 0
    return per_second * STEP * (tick - since) + (0 if since else 1e6)


def rising(host: str, per_second: float) -> Callable[[int], float]:
    return lambda tick: counted(host, tick, per_second)


def constant(value: float) -> Callable[[int], float]:
    return lambda _: value


def series(host: str) -> Iterator[tuple[str, str, Callable[[int], float]]]:
    """Yield name, labels and values of a host."""
    node = f'job="node",instance="10.0.0.{host[-1]}:9100"'
    gpu = f'job="dcgm",instance="10.1.0.{host[-1]}:9400",Hostname="{host}"'
    yield "node_uname_info", f'{node},nodename="{host}"', constant(1)
    for priority, per_second in ((3, 20.0), (4, 10.0)):
        for port in ("eth2", "eth3"):
            name = f"node_ethtool_transmitted_prio{priority}_pause"
            yield name, f'{node},device="{port}"', rising(host, per_second)
    for device in ("mlx5_0", "mlx5_bond_0"):
        name = "node_infiniband_port_data_transmitted_bytes_total"
        yield name, f'{node},device="{device}",port="1"', rising(host, 5e9)
    for device in ("eth0", "bond0", "eth0.7", "veth12"):
        name = "node_network_transmit_bytes_total"
        yield name, f'{node},device="{device}"', rising(host, 1e9)
    for cpu in range(2):
        labels = f'{node},mode="idle",cpu="{cpu}"'
        yield "node_cpu_seconds_total", labels, rising(host, IDLE_CPU)
        yield "node_cpu_seconds_total", labels.replace("idle", "user"), lambda t: 0.25 * STEP * t
    for slot in range(2):
        labels = f'{gpu},gpu="{slot}",UUID="GPU-{host}-{slot}"'
        yield "DCGM_FI_DEV_GPU_UTIL", labels, constant(90.0 + 4 * slot)
        yield "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", labels, constant(0.5)
        for way in "TR":
            yield f"DCGM_FI_PROF_NVLINK_{way}X_BYTES", labels, constant(1e11)


def exposition(begin: int) -> str:
    by_name: dict[str, list[str]] = {}
    for host in HOSTS:
        for name, labels, value in series(host):
            rows = by_name.setdefault(name, [f"# TYPE {name} unknown"])
            rows += [f"{name}{{{labels}}} {value(t)} {begin + STEP * t}" for t in range(N)]
    return "\n".join([*(line for rows in by_name.values() for line in rows), "# EOF\n"])


@pytest.fixture(scope="module")
def pulled(
    prometheus_over: Callable[[Path], str], tmp_path_factory: pytest.TempPathFactory
) -> pd.DataFrame:
    folder = tmp_path_factory.mktemp("site")
    begin = int(time.time()) // 60 * 60 - 7200
    (folder / "samples").write_text(exposition(begin))
    (folder / "tasks.csv").write_text("task,machine\n" + "".join(f"job 1,{h}\n" for h in HOSTS))
    (folder / "my.toml").write_text('[detection]\ninterval = "15s"\n[watch]\ntasks = "tasks.csv"\n')
    words = ["detect", "pull", "--prometheus", prometheus_over(folder / "samples")]
    words += ["--config", str(folder / "my.toml"), "--out", str(folder / "metrics")]
    span = [pd.Timestamp(begin + s, unit="s").isoformat() for s in (-STEP, STEP * (N - 1))]
    assert main([*words, "--start", span[0], "--end", span[1]]) == 0
    files = sorted((folder / "metrics").glob("task=job_1~*/*.parquet"))
    assert len(files) > 1
    return pd.concat(map(pd.read_parquet, files))


def test_each_machine_has_its_own_name(pulled: pd.DataFrame) -> None:
    assert set(pulled["machine"]) == set(HOSTS)


@pytest.mark.parametrize(
    ("metric", "value"),
    [
        ("pfc_tx_packet_rate", 60.0),  # of two ports and two priorities
        ("rdma_throughput", 80.0),  # Gbit/s of two devices
        ("tcp_throughput", 8.0),  # of eth0 alone: the others repeat its traffic
        ("cpu_usage", 25.0),
        ("gpu_duty_cycle", 92.0),
        ("tensor_core_activity", 50.0),
        ("nvlink_bandwidth", 200.0),
    ],
)
def test_values_are_in_our_units(pulled: pd.DataFrame, metric: str, value: float) -> None:
    known = pulled[metric].dropna()
    assert known.to_numpy() == pytest.approx(value, rel=1e-6)
    assert len(known) >= len(HOSTS) * (N - 1) - 1


def test_reset_is_no_negative_rate(pulled: pd.DataFrame) -> None:
    restarted = pulled[pulled["machine"] == RESET[0]].sort_values("timestamp")
    assert restarted["pfc_tx_packet_rate"].isna().sum() == 2  # the first sample and the reset
    assert restarted["gpu_duty_cycle"].notna().all()


def test_task_without_label_or_table_is_explained(
    prometheus_over: Callable[[Path], str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    begin = int(time.time()) - 3600
    (tmp_path / "samples").write_text(exposition(begin))
    url = prometheus_over(tmp_path / "samples")
    end = pd.Timestamp(begin + STEP * N, unit="s").isoformat()
    words = ["detect", "pull", "--prometheus", url, "--out", str(tmp_path / "metrics")]
    assert main([*words, "--end", end]) == 2
    error = capsys.readouterr().err
    assert "[watch] tasks" in error
    assert not (tmp_path / "metrics").exists()


def test_files_of_hosts_become_metrics(tmp_path: Path) -> None:
    begin = 1_772_323_200
    port = "/sys/class/infiniband/mlx5_0/ports/1"
    for host in HOSTS:
        (tmp_path / "raw" / host).mkdir(parents=True)
        for tick in range(8):
            text = (
                f"{port}/counters/port_xmit_data:{10**9 * 15 * tick}\n"
                f"{port}/hw_counters/np_cnp_sent:{45 * tick}\n"
                f"ens9\nNIC statistics:\n     tx_prio3_pause: {30 * tick}\n"
                f'# TYPE DCGM_FI_DEV_GPU_UTIL gauge\nDCGM_FI_DEV_GPU_UTIL{{gpu="0"}} 91\n'
            )
            (tmp_path / "raw" / host / f"all-{begin + STEP * tick}.txt").write_text(text)
    (tmp_path / "tasks.csv").write_text("task,machine\n" + "".join(f"j,{h}\n" for h in HOSTS))
    (tmp_path / "my.toml").write_text('[detection]\ninterval = "15s"\n[watch]\ntasks="tasks.csv"\n')
    out = tmp_path / "metrics"
    words = ["detect", "pull", "--raw", str(tmp_path / "raw"), "--out", str(out)]
    assert main([*words, "--config", str(tmp_path / "my.toml")]) == 0
    table = pd.concat(map(pd.read_parquet, (out / "task=j").glob("*.parquet")))
    assert set(table["machine"]) == set(HOSTS)
    rates = {"rdma_throughput": 32.0, "cnp_sent_rate": 3.0, "pfc_tx_packet_rate": 2.0}
    for name, value in (rates | {"gpu_duty_cycle": 91.0}).items():
        known = table[name].dropna()
        assert known.to_numpy() == pytest.approx(value)
        assert len(known) >= len(HOSTS) * 7
