"""Choice of the GPU source: NVML if it works, otherwise `nvidia-smi`."""

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


def open_source(kind: str, timeout: float) -> GpuSource:
    """Return the source named by the policy: "nvml", "nvidia-smi", or "auto" for one that works."""
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
