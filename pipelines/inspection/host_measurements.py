"""Measurements of a host that forewarn makes itself: `python -m THIS_MODULE NAME`.

Each runs in a process of its own, so that one that hangs can be killed. It prints a JSON list of
slots and values, or an object with the reason why it cannot run.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

__all__ = ["MEASUREMENTS", "NotRunError", "measure"]

Values = list[tuple[str | None, str]]

_FILE_SYSTEMS: Final = (
    *("ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "nfs", "nfs4", "lustre", "beegfs"),
    *("gpfs", "wekafs", "ceph", "cifs", "9p", "virtiofs", "fuse.glusterfs"),
)
_SCRATCH_BYTES: Final = 64 << 20
_VENDOR_NVIDIA: Final = "0x10de"
_PCI_CLASSES: Final = ("0x0302", "0x0300", "0x0200", "0x0207", "0x0108")  # GPU, NIC, IB, NVMe


class NotRunError(Exception):
    """A measurement that this host cannot make."""


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""


def _mounts(root: Path) -> Iterator[list[str]]:
    for line in _text(root / "proc/mounts").splitlines():
        if len(fields := line.split()) >= 4:
            yield fields


def file_system_use(args: Sequence[str], root: Path) -> Values:
    """Return the used share of each file system in percent: of space, or of inodes."""
    shares: Values = []
    seen = set()
    for device, folder, kind, *_ in _mounts(root):
        if kind not in _FILE_SYSTEMS or device in seen:
            continue
        seen.add(device)
        use = os.statvfs(root / folder.lstrip("/"))
        if "inodes" in args:
            used, free = use.f_files - use.f_ffree, use.f_favail
        else:
            used, free = use.f_blocks - use.f_bfree, use.f_bavail
        if used + free:
            shares.append((folder, f"{100.0 * used / (used + free):.1f}"))
    return shares


def missing_mounts(args: Sequence[str], root: Path) -> Values:
    """Return the number of file systems of fstab that are not mounted."""
    present = {folder for _, folder, *_ in _mounts(root)}
    expected = [
        fields[1]
        for line in _text(root / "etc/fstab").splitlines()
        if (fields := line.split("#")[0].split())[3:]
        and fields[2] != "swap"
        and fields[1].startswith("/")
        and "noauto" not in fields[3].split(",")
    ]
    return [(None, str(len(set(expected) - present)))]


def service(args: Sequence[str], root: Path) -> Values:
    """Return 1 if a service of systemd is active, else 0."""
    shown = _output(["systemctl", "show", "-p", "LoadState,ActiveState", "--", *args])
    states = dict(line.partition("=")[::2] for line in shown.splitlines())
    if states.get("LoadState") != "loaded":
        raise NotRunError(f"there is no service {args[0]}")
    return [(None, str(int(states.get("ActiveState") == "active")))]


def _output(command: Sequence[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, check=False)
    except OSError as error:
        raise NotRunError(f"{command[0]} cannot be run: {error.strerror}") from None
    return done.stdout.decode(errors="replace")


def stuck_processes(args: Sequence[str], root: Path) -> Values:
    """Return the number of processes that wait in the kernel (state D) in three looks."""
    looks = []
    for look in range(3):
        time.sleep(0.2 * bool(look))
        looks.append(
            {
                path.parent.name
                for path in (root / "proc").glob("[0-9]*/stat")
                if _text(path).rpartition(")")[2].split()[:1] == ["D"]
            }
        )
    return [(None, str(len(set.intersection(*looks))))]


def scratch_write(args: Sequence[str], root: Path) -> Values:
    """Write, flush, read and compare a file; return MiB/s of the write."""
    path = Path(args[0], f".forewarn-scratch-{os.getpid()}")
    block = os.urandom(1 << 20)
    try:
        started = time.perf_counter()
        with path.open("wb") as file:
            for _ in range(_SCRATCH_BYTES >> 20):
                file.write(block)
            file.flush()
            os.fsync(file.fileno())
            seconds = time.perf_counter() - started
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        with path.open("rb") as file:
            if any(part != block for part in iter(lambda: file.read(1 << 20), b"")):
                return [(None, "-1")]
    finally:
        path.unlink(missing_ok=True)
    return [(None, f"{(_SCRATCH_BYTES >> 20) / seconds:.1f}")]


def _core_digest() -> str:
    """Return a hash of integer and floating-point work; every healthy core has the same."""
    state, total = 0x9E3779B97F4A7C15, 1.0
    digest = hashlib.sha256()
    for _ in range(20_000):
        state = (state * 6364136223846793005 + 1442695040888963407) & 0xFFFFFFFFFFFFFFFF
        total = (total * 1.0000001 + (state >> 40) / 3.0) % 1e6
        digest.update(state.to_bytes(8, "little") + total.hex().encode())
    return digest.hexdigest()


def differing_cores(
    args: Sequence[str],
    root: Path,
    compute: Callable[[], str] = _core_digest,
) -> Values:
    """Return how many cores compute another result than most, each used alone."""
    cores = sorted(os.sched_getaffinity(0))
    digests = {}
    for core in cores:
        os.sched_setaffinity(0, {core})
        digests[core] = compute()
    os.sched_setaffinity(0, cores)
    usual = Counter(digests.values()).most_common(1)[0][0]
    return [(None, str(sum(other != usual for other in digests.values())))]


def matrix_product(args: Sequence[str], root: Path) -> Values:
    """Multiply matrices of small integers, whose product is exact; return GFLOP/s, or -1."""
    try:
        import numpy as np
    except ModuleNotFoundError:
        raise NotRunError("numpy is not installed") from None
    n, times = 1024, []
    left = (np.arange(n * n).reshape(n, n) * 7919 % 31).astype(np.float64)
    right = (np.arange(n * n).reshape(n, n) * 6007 % 29).astype(np.float64)
    expected = left @ right.sum(axis=1)  # every entry below 2**53, so the order does not matter
    for _ in range(5):
        started = time.perf_counter()
        product = left @ right
        times.append(time.perf_counter() - started)
        if not np.array_equal(product.sum(axis=1), expected):
            return [(None, "-1")]
    return [(None, f"{2.0 * n**3 / min(times) / 1e9:.2f}")]


def kernel_options(args: Sequence[str], root: Path) -> Values:
    """Return the options of the kernel without those that name a disk or an image."""
    own = ("BOOT_IMAGE=", "root=", "resume=", "initrd=", "crashkernel=", "ip=")
    options = _text(root / "proc/cmdline").split()
    return [(None, " ".join(sorted(o for o in options if not o.startswith(own))))]


def _pci_devices(root: Path) -> Iterator[Path]:
    yield from sorted((root / "sys/bus/pci/devices").glob("*"))


def unbound_gpus(args: Sequence[str], root: Path) -> Values:
    """Return how many GPUs on the PCI bus the driver does not have."""
    gpus = [
        device.name
        for device in _pci_devices(root)
        if _text(device / "vendor") == _VENDOR_NVIDIA
        and _text(device / "class").startswith(("0x0302", "0x0300"))
    ]
    if not gpus:
        raise NotRunError("there is no GPU on the PCI bus")
    driven = {path.name for path in (root / "proc/driver/nvidia/gpus").glob("*")}
    return [(None, str(len(set(gpus) - driven)))]


def pcie_width(args: Sequence[str], root: Path) -> Values:
    """Return the share of its lanes that each GPU, network card and NVMe drive uses."""
    shares: Values = []
    for device in _pci_devices(root):
        widths = [_text(device / f"{name}_link_width") for name in ("current", "max")]
        if not all(width.isdecimal() for width in widths) or int(widths[1]) in (0, 255):
            continue
        if _text(device / "class").startswith(_PCI_CLASSES):
            shares.append((device.name, f"{int(widths[0]) / int(widths[1]):.4f}"))
    return shares


def port_errors(args: Sequence[str], root: Path) -> Values:
    """Return the error counters of physical network ports that `ethtool -S` has, summed by port."""
    from forewarn.features.telemetry.network.error_counters import PORT_COUNTERS
    from forewarn.pipelines.agent.ethtool_statistics import ethtool_statistics

    totals: Values = []
    for device in sorted((root / "sys/class/net").glob("*/device")):
        port = device.parent.name
        with suppress(OSError):
            names = [n for n in PORT_COUNTERS if not args or n in args]
            counters = dict(ethtool_statistics(port))
            counts = [counters[name] for name in names if name in counters]
            if counts:
                totals.append((port, str(sum(counts))))
    if not totals:
        raise NotRunError("no network port has counters of errors")
    return totals


def drive_health(args: Sequence[str], root: Path) -> Values:
    """Return a figure of each drive: `health` (1: passed), `wear` or `media_errors`."""
    scan = json.loads(_output(["smartctl", "--scan", "-j"]) or "{}")
    values: Values = []
    for entry in scan.get("devices", ()):
        report = json.loads(_output(["smartctl", "-j", "-H", "-A", entry["name"]]) or "{}")
        log = report.get("nvme_smart_health_information_log", {})
        figure = {
            "health": report.get("smart_status", {}).get("passed"),
            "wear": log.get("percentage_used"),
            "media_errors": log.get("media_errors"),
        }[args[0]]
        if figure is not None:
            values.append((str(entry["name"]), str(int(figure))))
    if not values:
        raise NotRunError("no drive states it")
    return values


def dcgm_failures(args: Sequence[str], root: Path) -> Values:
    """Run `dcgmi diag -j` at a level; return the number of tests and GPUs that failed."""
    from forewarn.features.telemetry.checks.dcgm_checks import parse_dcgm_diagnostic

    results, unread = parse_dcgm_diagnostic(_output(["dcgmi", "diag", "-r", args[0], "-j"]))
    if not results:
        reason = next(iter(unread.examples.values()), "empty output")
        raise NotRunError(f"dcgmi has no result ({reason})")
    return [(None, str(sum(result.severity in ("error", "critical") for result in results)))]


def gateway_loss(args: Sequence[str], root: Path) -> Values:
    """Return the share of lost packets to the default gateway in percent."""
    routes = [line.split() for line in _text(root / "proc/net/route").splitlines()[1:]]
    gateways = [r[2] for r in routes if len(r) > 2 and r[1] == "00000000" and r[2] != "00000000"]
    if not gateways:
        raise NotRunError("there is no default gateway")
    address = ".".join(str(byte) for byte in reversed(bytes.fromhex(gateways[0])))
    shown = _output(["ping", "-n", "-q", "-c", "10", "-i", "0.2", "-W", "1", address])
    words = shown.split("% packet loss")[0].split()
    return [(address, words[-1])] if "% packet loss" in shown else []


def cmdb_differences(args: Sequence[str], root: Path) -> Values:
    """Return how many GPUs of the CMDB and of the machine differ, by serial."""
    from forewarn.pipelines.ingest.cmdb import read_cmdb

    cmdb, machine = os.environ.get("FOREWARN_CMDB", ""), os.environ.get("FOREWARN_MACHINE_ID", "")
    if not cmdb:
        raise NotRunError("no CMDB was named (--cmdb)")
    table = read_cmdb(Path(cmdb)).attributes
    if "machine_id" not in table.column_names:
        raise NotRunError("the CMDB names no machines")
    expected = {row["gpu_serial"] for row in table.to_pylist() if row["machine_id"] == machine}
    if not expected:
        raise NotRunError(f"the CMDB has no GPU of {machine}")
    shown = _output(["nvidia-smi", "--query-gpu=serial", "--format=csv,noheader"])
    return [(None, str(len(expected ^ set(shown.split()))))]


def cpu_topology(args: Sequence[str], root: Path) -> Values:
    """Return the number of `sockets`, `cores` or `threads` of the CPUs."""
    seen = set()
    for topology in (root / "sys/devices/system/cpu").glob("cpu[0-9]*/topology"):
        socket, core = (_text(topology / name) for name in ("physical_package_id", "core_id"))
        seen.add({"sockets": socket, "cores": (socket, core), "threads": topology}[args[0]])
    return [(None, str(len(seen)))] if seen else []


def free_space(args: Sequence[str], root: Path) -> Values:
    """Return free `space` in KiB, `inodes`, or a `_share` of them in percent, of a folder."""
    kind, folder = args
    use = os.statvfs(root / folder.lstrip("/"))
    if kind.startswith("inodes"):
        free, total = use.f_favail, use.f_files
    else:
        free, total = use.f_bavail * use.f_frsize // 1024, use.f_blocks * use.f_frsize // 1024
    shown = 100.0 * free / max(1, total) if kind.endswith("_share") else free
    return [(folder, f"{shown:.0f}")]


def file_test(args: Sequence[str], root: Path) -> Values:
    """Return 1 if `test -FLAG FILE` holds for all flags, else 0."""
    flags, name = args
    results = [_exit_code(["test", f"-{flag}", str(root / name.lstrip("/"))]) for flag in flags]
    return [(name, str(int(not any(results))))]


def processes(args: Sequence[str], root: Path) -> Values:
    """Return the number of processes of a program."""
    names = [_text(path) for path in (root / "proc").glob("[0-9]*/comm")]
    return [(None, str(names.count(args[0][:15])))]  # the kernel keeps 15 characters


def neighbours(args: Sequence[str], root: Path) -> Mapping[str, Any]:
    """Return the seconds of pairs and rings with the neighbours that the environment names."""
    from forewarn.pipelines.inspection.neighbour_check import measure_neighbours

    return measure_neighbours(os.environ)


def _exit_code(command: Sequence[str]) -> int:
    return subprocess.run(command, check=False, capture_output=True).returncode


MEASUREMENTS: Final[dict[str, Callable[[Sequence[str], Path], Values | Mapping[str, Any]]]] = {
    function.__name__: function
    for function in (
        *(cmdb_differences, cpu_topology, dcgm_failures, differing_cores, drive_health),
        *(file_system_use, file_test, free_space, processes),
        *(gateway_loss, kernel_options, matrix_product, missing_mounts, neighbours, pcie_width),
        port_errors,
        *(scratch_write, service, stuck_processes, unbound_gpus),
    )
}


def measure(name: str, args: Sequence[str], root: Path = Path("/")) -> str:
    """Return the values of a measurement, or the reason why it cannot run, as JSON.

    Parameters
    ----------
    name : str
        One of MEASUREMENTS.
    args : sequence of str
    root : Path
        Folder that contains `proc` and `sys`.
    """
    try:
        return json.dumps(MEASUREMENTS[name](args, root))
    except NotRunError as error:
        return json.dumps({"not_run": str(error)})


if __name__ == "__main__":
    sys.stdout.write(measure(sys.argv[1], sys.argv[2:]))
