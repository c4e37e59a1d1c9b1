"""Where an agent gets readings from: NVML where it works, `nvidia-smi` otherwise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from forewarn.pipelines.agent.gpu_source import GpuPoll, GpuSource, HangError, NoSourceError
from forewarn.pipelines.agent.nvidia_smi import NvidiaSmi

if TYPE_CHECKING:
    from forewarn.pipelines.agent.nvml import Nvml

__all__ = ["NvmlWithFallback", "open_source"]


@dataclass(frozen=True, slots=True)
class NvmlWithFallback:
    """NVML, and where it fails the program: a process keeps the library of the driver before.

    After an upgrade of the driver NVML fails until the agent is started again; a program that is
    started anew has the new library.
    """

    nvml: Nvml
    smi: NvidiaSmi

    def read(self, timeout: float) -> GpuPoll:
        """Return all GPUs; raises what NVML said where the program cannot read them either."""
        try:
            return self.nvml.read(timeout)
        except NoSourceError as error:
            try:
                return self.smi.read(timeout)
            except NoSourceError:
                raise error from None


def open_source(kind: str, timeout: float) -> GpuSource:
    """Return the source that a policy asks for: "nvml", "nvidia-smi", or "auto" for what works."""
    if kind == "nvidia-smi":
        return NvidiaSmi()
    library = _nvml()
    if library is not None:
        from forewarn.pipelines.agent.nvml import Nvml

        source = Nvml(library)
        if kind == "nvml":
            return source
        if _works(source, timeout):
            return NvmlWithFallback(source, NvidiaSmi())
    if kind == "nvml":
        raise NoSourceError("the library of NVML is not there")
    return NvidiaSmi()


def _works(source: Nvml, timeout: float) -> bool:
    try:
        source.read(timeout)
    except HangError:
        return True  # it is there, and in trouble: nvidia-smi would hang, too
    except NoSourceError:
        return False
    return True


def _nvml() -> Any:
    try:
        import pynvml
    except ImportError:
        return None
    return pynvml
