"""For each shipped check what a healthy machine shows, and what a planted defect shows.

Files are those below `/`; commands are the output of a stub on PATH, in the form of the real tool.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["DEFECTS", "Files", "Stub"]


@dataclass(frozen=True)
class Files:
    """Files of a machine, by path without the first `/`."""

    content: dict[str, str]


@dataclass(frozen=True)
class Stub:
    """Output and exit code of a program."""

    output: str
    code: int = 0
    program: str = ""


def file(path: str, healthy: str, bad: str) -> tuple[Files, Files]:
    return Files({path: healthy}), Files({path: bad})


def stub(healthy: str, bad: str, program: str = "") -> tuple[Stub, Stub]:
    return Stub(healthy, 0, program), Stub(bad, 0, program)


def listing(pattern: str, healthy: int, bad: int) -> tuple[Files, Files]:
    return tuple(Files({pattern % n: "" for n in range(count)}) for count in (healthy, bad))  # type: ignore[return-value]


_EIGHT = range(8)
_HEALTH = ["0", "0", "0", "0", "No", "No", "No", *["Not Active"] * 3, "41"]
_IDENTITY = ["NVIDIA H100 80GB HBM3", "96.00.74.00.01", "81559", *["Enabled"] * 2, "Disabled"]
_IDENTITY += ["16", "5", "1980", "1980", "700.00"]


def gpus(fields: list[str], column: int, bad: str) -> tuple[Stub, Stub]:
    """Eight GPUs as `nvidia-smi --format=csv,noheader,nounits` lists them; the fourth is bad."""
    rows = [[str(n), *fields] for n in _EIGHT]
    damaged = [list(row) for row in rows]
    damaged[3][column + 1] = bad
    text = ["\n".join(", ".join(row) for row in table) + "\n" for table in (rows, damaged)]
    return Stub(text[0]), Stub(text[1])


def infiniband(name: str, healthy: str, bad: str) -> tuple[Files, Files]:
    good = {f"sys/class/infiniband/mlx5_{n}/{name}": healthy for n in range(4)}
    return Files(good), Files({**good, f"sys/class/infiniband/mlx5_2/{name}": bad})


def port(name: str, healthy: str, bad: str) -> tuple[Files, Files]:
    good = {f"sys/class/net/eth{n}/device/net/eth{n}/{name}": healthy for n in range(2)}
    return Files(good), Files({**good, f"sys/class/net/eth1/device/net/eth1/{name}": bad})


def pci(changes: dict[str, str]) -> Files:
    content: dict[str, str] = {}
    for n in range(2):
        device = {"vendor": "0x10de", "class": "0x030200"}
        device |= {"current_link_width": "16", "max_link_width": "16"}
        device |= changes if n else {}
        folder = f"sys/bus/pci/devices/0000:{n}b:00.0"
        content |= {f"{folder}/{name}": text for name, text in device.items()}
        content[f"proc/driver/nvidia/gpus/0000:{n}b:00.0/information"] = "Model: NVIDIA H100\n"
    return Files(content)


def unit(state: str, load: str = "loaded") -> str:
    return f"LoadState={load}\nActiveState={state}\n"


def fio(kind: str, bandwidth: int, error: int = 0, latency: float = 52_000.0) -> str:
    return (
        '{"fio version": "fio-3.33", "jobs": [{"jobname": "r", "error": %d, "%s": {"bw": %d}, '
        '"sync": {"total_ios": 0, "lat_ns": {"min": 0, "max": 9, "mean": %f}}}]}\n'
    ) % (error, kind, bandwidth, latency)


def smart(health: str, wear: int, errors: int) -> str:
    return (
        'case "$*" in *scan*) echo \'{"devices": [{"name": "/dev/nvme0"}]}\';; '
        '*) echo \'{"smart_status": {"passed": %s}, "nvme_smart_health_information_log": '
        '{"percentage_used": %d, "media_errors": %d}}\';; esac'
    ) % (health, wear, errors)


def torch(value: str, bad: str) -> tuple[Stub, Stub]:
    good = '{"values": [["0", "%s"], ["1", "%s"]], "versions": {"torch": "2.6.0"}}\n'
    return stub(good % (value, value), good % (value, bad), "python")


_MEMINFO = "MemTotal:       %d kB\nMemFree:         103 kB\n"
_LINK = "\t Link %d: %s\n"
_LINKS = "GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-1)\n"
_NCCL = "# Out of bounds values : %d %s\n# Avg bus bandwidth    : %s \n#\n"
_DCGM = '{"DCGM Diagnostic": {"test_categories": [{"category": "Hardware", "tests": [%s]}]}}\n'
_TEST = '{"name": "Memory", "results": [{"gpu_id": "0", "status": "%s"}]}'
_MOUNTS = "/dev/sda1 / ext4 rw,relatime 0 0\n/dev/sdb1 /scratch xfs %s,noatime 0 0\n"
_FSTAB = "UUID=1 / ext4 defaults 0 1\nnas:/data /data nfs defaults 0 0\n"
_CHRONY = (
    "C0A80001,192.168.0.1,2,1740787200.1,%s,0.000002,0.00001,1.2,0.0,0.1,0.001,0.0,64.0,Normal\n"
)
_MBW = "AVG\tMethod: MEMCPY\tElapsed: 0.04\tMiB: 256.00000\tCopy: %s MiB/s\n"
_ROUTE = "Iface\tDestination\tGateway\nlo\t00000000\t0100007F\n"
_PING = "10 packets transmitted, %d received, %d%% packet loss, time 1800ms\n"
_CPUS = "processor\t: 0\nmodel name\t: %s\nmicrocode\t: %s\n"

DEFECTS: dict[str, tuple[Files, Files] | tuple[Stub, Stub]] = {
    "memory_total": file("proc/meminfo", _MEMINFO % 2_113_403_224, _MEMINFO % 2_047_343_000),
    "cpu_count": listing("sys/devices/system/cpu/cpu%d/topology/x", 8, 6),
    "numa_nodes": listing("sys/devices/system/node/node%d/meminfo", 2, 1),
    "network_ports": listing("sys/class/net/eth%d/device/vendor", 8, 7),
    "infiniband_ports": listing("sys/class/infiniband/mlx5_%d/ports/1/state", 8, 7),
    "drives": listing("sys/block/nvme%dn1/device/model", 4, 3),
    "gpus": listing("proc/driver/nvidia/gpus/0000:%d0:00.0/information", 8, 7),
    "unbound_gpus": (
        pci({}),
        Files(dict(list(pci({}).content.items())[:-1])),
    ),
    "board_model": file("sys/class/dmi/id/product_name", "XE9680", "XE8545"),
    "firmware": file("sys/class/dmi/id/bios_version", "1.6.6", "1.4.1"),
    "microcode": file("proc/cpuinfo", _CPUS % ("Xeon", "0x2b0004d0"), _CPUS % ("Xeon", "0x2b1")),
    "cpu_model": file("proc/cpuinfo", _CPUS % ("Xeon 8480", "1"), _CPUS % ("Xeon 8462", "1")),
    "adapter_firmware": infiniband("fw_ver", "28.39.1002", "28.35.2000"),
    "kernel": file("proc/sys/kernel/osrelease", "5.15.0-91-generic", "5.15.0-25-generic"),
    "kernel_options": file(
        "proc/cmdline", "BOOT_IMAGE=/a root=UUID=1 iommu=pt", "BOOT_IMAGE=/b root=UUID=2 iommu=on"
    ),
    "driver_version": file("sys/module/nvidia/version", "550.54.15", "535.129.03"),
    "pcie_width": (pci({}), pci({"current_link_width": "8"})),
    "failed_services": stub("", "nfs-client.target loaded failed failed NFS\n"),
    "peer_memory": listing("sys/module/nvidia_peermem/version%d", 1, 0),
    "locked_memory": file(
        "proc/self/limits",
        "Max locked memory         unlimited            unlimited            bytes\n",
        "Max locked memory         65536                65536                bytes\n",
    ),
    "missing_mounts": (
        Files(
            {"etc/fstab": _FSTAB, "proc/mounts": "a / ext4 rw 0 0\nnas:/data /data nfs rw 0 0\n"}
        ),
        Files({"etc/fstab": _FSTAB, "proc/mounts": "a / ext4 rw 0 0\n"}),
    ),
    "read_only_mounts": file("proc/mounts", _MOUNTS % "rw", _MOUNTS % "ro"),
    "stuck_processes": (
        Files({f"proc/{n}/stat": f"{n} (a b) S 1" for n in range(1, 40)}),
        Files({f"proc/{n}/stat": f"{n} (a) b) D 1" for n in range(1, 40)}),
    ),
    "clock_offset": stub(_CHRONY % "-0.000012345", _CHRONY % "0.732000000"),
    "clock_synchronised": stub("NTPSynchronized=yes\n", "NTPSynchronized=no\n"),
    "out_of_memory_kills": file("proc/vmstat", "oom_kill 0\n", "oom_kill 7\n"),
    "memory_corrected": file("sys/devices/system/edac/mc/mc1/ce_count", "0", "4711"),
    "memory_uncorrected": file("sys/devices/system/edac/mc/mc1/ue_count", "0", "1"),
    "memory_by_node": file(
        "sys/devices/system/node/node1/meminfo",
        "Node 1 MemTotal:  1056758272 kB\n",
        "Node 1 MemTotal:   990697984 kB\n",
    ),
    "memory_patterns": (
        Stub("stress-ng: info:  [1] successful run completed in 45.02s\n"),
        Stub("stress-ng: fail:  [2] vm: detected 8 bit errors while stressing memory\n", 2),
    ),
    "memory_write": stub(
        "4096.00 MiB transferred (11523.44 MiB/sec)\n",
        "4096.00 MiB transferred (5120.10 MiB/sec)\n",
    ),
    "memory_copy": stub(_MBW % "12034.250", _MBW % "6011.100"),
    "cpu_verified": (
        Stub("stress-ng: info:  [1] successful run completed in 30.01s\n"),
        Stub("stress-ng: fail:  [3] cpu: sqrt error detected on sqrt(1234)\n", 2),
    ),
    "cpu_throughput": stub(
        "    events per second:  1312.55\n", "    events per second:   656.10\n"
    ),
    "cpu_throttles": file(
        "sys/devices/system/cpu/cpu3/thermal_throttle/core_throttle_count", "0", "8123"
    ),
    "cpu_max_clock": file(
        "sys/devices/system/cpu/cpu3/cpufreq/scaling_max_freq", "3800000", "2000000"
    ),
    "cpu_governor": file(
        "sys/devices/system/cpu/cpu3/cpufreq/scaling_governor", "performance", "powersave"
    ),
    "temperature": file("sys/class/thermal/thermal_zone0/temp", "41000", "104000"),
    "drive_read": stub(fio("read", 6_400_000), fio("read", 310_000)),
    "drive_write": stub(fio("write", 3_100_000), fio("write", 200_000)),
    "drive_latency": stub(fio("write", 1), fio("write", 1, latency=9_100_000.0)),
    "drive_verify": (Stub(fio("write", 1)), Stub(fio("write", 1, error=84), 1)),
    "drive_health": (
        Stub(smart("true", 3, 0), program="smartctl"),
        Stub(smart("false", 3, 0), program="smartctl"),
    ),
    "drive_wear": (
        Stub(smart("true", 3, 0), program="smartctl"),
        Stub(smart("true", 130, 0), program="smartctl"),
    ),
    "drive_media_errors": (
        Stub(smart("true", 3, 0), program="smartctl"),
        Stub(smart("true", 3, 12), program="smartctl"),
    ),
    "array_degraded": file(
        "proc/mdstat", "md0 : active raid1\n  1 blocks [2/2] [UU]\n", "md0 : x\n  [2/1] [U_]\n"
    ),
    "file_system_errors": file("sys/fs/ext4/sda1/errors_count", "0", "3"),
    "port_speed": port("speed", "100000", "10000"),
    "port_link": port("carrier", "1", "0"),
    "port_flaps": port("carrier_changes", "2", "917"),
    "port_receive_errors": port("statistics/rx_errors", "0", "5020"),
    "port_checksum_errors": port("statistics/rx_crc_errors", "0", "5020"),
    "port_send_errors": port("statistics/tx_errors", "0", "31"),
    "port_mtu": port("mtu", "9000", "1500"),
    "bond_ports_down": file(
        "proc/net/bonding/bond0",
        "Slave Interface: eth0\nMII Status: up\n",
        "Slave Interface: eth0\nMII Status: down\n",
    ),
    "infiniband_state": infiniband("ports/1/state", "4: ACTIVE", "1: DOWN"),
    "infiniband_speed": infiniband("ports/1/rate", "400 Gb/sec (4X NDR)", "100 Gb/sec (1X NDR)"),
    "infiniband_symbol_errors": infiniband("ports/1/counters/symbol_error", "0", "6011"),
    "infiniband_link_downs": infiniband("ports/1/counters/link_downed", "0", "14"),
    "infiniband_receive_errors": infiniband("ports/1/counters/port_rcv_errors", "0", "88"),
    "rdma_timeouts": infiniband("ports/1/hw_counters/local_ack_timeout_err", "0", "2044"),
    "gateway_loss": stub(_PING % (10, 0), _PING % (6, 40), "ping"),
    "gpu_uncorrected": gpus(_HEALTH, 0, "2"),
    "gpu_uncorrected_ever": gpus(_HEALTH, 1, "9"),
    "gpu_corrected": gpus(_HEALTH, 2, "51234"),
    "gpu_remapped_uncorrected": gpus(_HEALTH, 3, "4"),
    "gpu_remap_pending": gpus(_HEALTH, 4, "Yes"),
    "gpu_remap_failed": gpus(_HEALTH, 5, "Yes"),
    "gpu_pages_pending": gpus(_HEALTH, 6, "Yes"),
    "gpu_slowdown": gpus(_HEALTH, 7, "Active"),
    "gpu_thermal_slowdown": gpus(_HEALTH, 8, "Active"),
    "gpu_power_brake": gpus(_HEALTH, 9, "Active"),
    "gpu_temperature": gpus(_HEALTH, 10, "94"),
    "gpu_model": gpus(_IDENTITY, 0, "NVIDIA H100 PCIe"),
    "gpu_firmware": gpus(_IDENTITY, 1, "96.00.30.00.01"),
    "gpu_memory": gpus(_IDENTITY, 2, "40536"),
    "gpu_ecc_mode": gpus(_IDENTITY, 3, "Disabled"),
    "gpu_persistence": gpus(_IDENTITY, 4, "Disabled"),
    "gpu_mig_mode": gpus(_IDENTITY, 5, "Enabled"),
    "gpu_pcie_width": gpus(_IDENTITY, 6, "8"),
    "gpu_pcie_max_generation": gpus(_IDENTITY, 7, "4"),
    "gpu_clock_limit": gpus(_IDENTITY, 8, "1410"),
    "gpu_application_clock": gpus(_IDENTITY, 9, "1410"),
    "gpu_power_limit": gpus(_IDENTITY, 10, "350.00"),
    "nvlink_down": stub(
        _LINKS + "".join(_LINK % (n, "26.562 GB/s") for n in range(18)),
        _LINKS + "".join(_LINK % (n, "26.562 GB/s" if n else "<inactive>") for n in range(18)),
    ),
    "nvlink_errors": stub(
        _LINKS + "\t Link 0: Replay Errors: 0\n\t Link 0: CRC Errors: 0\n",
        _LINKS + "\t Link 0: Replay Errors: 12\n\t Link 0: CRC Errors: 0\n",
    ),
    "dcgm_quick": stub(_DCGM % (_TEST % "Pass"), _DCGM % (_TEST % "Fail"), "dcgmi"),
    "dcgm_long": stub(_DCGM % (_TEST % "Pass"), _DCGM % (_TEST % "Fail"), "dcgmi"),
    "gpu_matrix_product": torch("712.4", "-1"),
    "gpu_memory_copy": torch("2380.1", "-1"),
    "host_to_gpu": torch("52.3", "13.1"),
    "all_reduce": torch("310.2", "-1"),
    "nccl_all_reduce": stub(_NCCL % (0, "OK", "361.2"), _NCCL % (0, "OK", "92.7")),
    "nccl_wrong_values": (
        Stub(_NCCL % (0, "OK", "361.2")),
        Stub(_NCCL % (3, "FAILED", "361.2"), 1),
    ),
    "training_step": torch("80f131987179d45d", "80f131987179d45e"),
    **{
        name: stub(unit("active"), unit("failed"), "systemctl")
        for name in (
            *("fabric_manager", "persistence_daemon", "dcgm_service", "slurmd_service"),
            *("kubelet_service", "munge_service", "chrony_service"),
        )
    },
}
