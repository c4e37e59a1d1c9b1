"""Choice of the GPU source: NVML if it works, else `nvidia-smi`, and other vendors' tools."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from forewarn.features.telemetry.parsers.gpu_reading import GpuReading, Unread
from forewarn.pipelines.agent.sources.amd_smi import AMD_PROGRAMS, AmdSmi
from forewarn.pipelines.agent.sources.gpu_source import GpuPoll, GpuSource, HangError, NoSourceError
from forewarn.pipelines.agent.sources.npu_smi import NPU_PROGRAM, NpuSmi
from forewarn.pipelines.agent.sources.nvidia_smi import NvidiaSmi

if TYPE_CHECKING:
    from forewarn.pipelines.agent.sources.nvml import Nvml

__all__ = ["MixedSource", "NvmlWithFallback", "open_source", "watch_source"]

_PCI_DEVICES = Path("/sys/bus/pci/devices")
_GPU_CLASSES = ("0x03", "0x12")  # display controllers and accelerators
_AMD, _HUAWEI, _NVIDIA = "0x1002", "0x19e5", "0x10de"


@dataclass(frozen=True, slots=True)
class NvmlWithFallback:
    """NVML with `nvidia-smi` as fallback.

    After a driver upgrade, NVML fails until the agent restarts, because the process keeps the old
    library. A new `nvidia-smi` process loads the new one.
    """

    nvml: Nvml
    smi: NvidiaSmi

    def read(self, timeout: float) -> GpuPoll:
        """Return all GPUs; raise the error of NVML if `nvidia-smi` cannot read them either."""
        try:
            return self.nvml.read(timeout)
        except NoSourceError as error:
            try:
                return self.smi.read(timeout)
            except NoSourceError:
                raise error from None


def watch_source(source: GpuSource) -> GpuSource | None:
    """Return a source of signs of damage that starts no process; None if there is none.

    On a host with GPUs of several vendors there is none: the GPUs that it lacks would seem lost.
    """
    from forewarn.pipelines.agent.sources.nvml import Nvml

    nvml = source.nvml if isinstance(source, NvmlWithFallback) else source
    return replace(nvml, only_damage=True) if isinstance(nvml, Nvml) else None


@dataclass(frozen=True, slots=True)
class MixedSource:
    """The sources of a host with GPUs of several vendors, each of which counts from index 0."""

    sources: Sequence[GpuSource]

    def read(self, timeout: float) -> GpuPoll:
        """Return the GPUs of every vendor; raise the first error if none answers.

        A vendor that does not answer is the `trouble` of the others: its GPUs may exist.
        """
        polls, errors = list[GpuPoll](), list[HangError | NoSourceError]()
        for source in self.sources:
            try:
                polls.append(source.read(timeout))
            except (HangError, NoSourceError) as error:
                errors.append(error)
        if not polls:
            raise errors[0]
        readings: list[GpuReading] = []
        unread = Unread()
        for poll in polls:
            taken = {gpu.slot for gpu in readings}
            readings += [replace(g, slot=None) if g.slot in taken else g for g in poll.readings]
            unread.join(poll.unread)
        troubles = [str(error) for error in errors] + [p.trouble for p in polls if p.trouble]
        lost = tuple(pci for poll in polls for pci in poll.lost)
        checks = [result for poll in polls for result in poll.checks]
        return GpuPoll(readings, lost, unread, "; ".join(troubles), checks)


def open_source(kind: str, timeout: float) -> GpuSource:
    """Return the source named by the policy.

    Parameters
    ----------
    kind : {"auto", "nvml", "nvidia-smi", "amd-smi", "npu-smi"}
        "auto" takes NVIDIA's source, and the tools of AMD and Huawei where they are installed, each
        only if the host has a device of the vendor: images may hold the tools of several.
    timeout : float
        Seconds, for the test whether NVML works.
    """
    if kind == "amd-smi":
        return AmdSmi()
    if kind == "npu-smi":
        return NpuSmi()
    nvidia = _nvidia_source(kind, timeout)
    others = _other_sources() if kind == "auto" else []
    if not others:
        return nvidia
    is_absent = isinstance(nvidia, NvidiaSmi) and shutil.which(nvidia.program) is None
    sources = others if is_absent or not _has_device(_NVIDIA) else [nvidia, *others]
    return MixedSource(sources) if len(sources) > 1 else sources[0]


def _other_sources() -> list[GpuSource]:
    """Return the sources of other vendors than NVIDIA whose tools and devices the host has."""
    sources = list[GpuSource]()
    if any(map(shutil.which, AMD_PROGRAMS)) and _has_device(_AMD):
        sources.append(AmdSmi())
    if shutil.which(NPU_PROGRAM) and _has_device(_HUAWEI):
        sources.append(NpuSmi())
    return sources


def _has_device(vendor: str) -> bool:
    """Tell whether a GPU of a vendor is on the PCI bus; True if the bus cannot be read."""
    vendors = set()
    for device in _PCI_DEVICES.glob("*"):
        with suppress(OSError):
            if (device / "class").read_text().startswith(_GPU_CLASSES):
                vendors.add((device / "vendor").read_text().strip())
    return not vendors or vendor in vendors


def _nvidia_source(kind: str, timeout: float) -> GpuSource:
    if kind == "nvidia-smi":
        return NvidiaSmi()
    library = _nvml()
    if library is not None:
        from forewarn.pipelines.agent.sources.nvml import Nvml

        source = Nvml(library)
        if kind == "nvml":
            return source
        if _works(source, timeout):
            return NvmlWithFallback(source, NvidiaSmi())
    if kind == "nvml":
        raise NoSourceError("NVML is not installed")
    return NvidiaSmi()


def _works(source: Nvml, timeout: float) -> bool:
    try:
        source.read(timeout)
    except HangError:
        return True  # NVML exists but hangs, and so would nvidia-smi
    except NoSourceError:
        return False
    return True


def _nvml() -> Any:
    try:
        import pynvml
    except ImportError:
        return None
    return pynvml
