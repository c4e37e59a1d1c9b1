"""Descriptions of files that cannot be read: what they are, and what to provide instead."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

__all__ = ["describe_json", "describe_text"]

_SMI = "`nvidia-smi --query-gpu=... --format=csv`"


def _looks_like(what: str, instead: str = "") -> str:
    """Return what a file is, and which output would be read instead."""
    text = f"looks like {what}, which is not read"
    return f"{text}; {instead} would be" if instead else text


_KERNEL_LOG = "`journalctl -k -o json` or the kernel log"
_TEXT_PATTERNS = (
    (re.compile(r"^# *(?:Date[ ,]+)?(?:Time[ ,]+)?gpu[ ,]+(?:pid)\b", re.M | re.I),
     _looks_like("the processes of `nvidia-smi pmon`", "`nvidia-smi dmon`")),
    (re.compile(r"^\*?\s*#Entity\b|^# *Entity\b", re.M),
     _looks_like("output of `dcgmi dmon`", f"{_SMI} or the text of dcgm-exporter")),
    (re.compile(r"^\| Diagnostic +\| Result", re.M),
     _looks_like("the table of `dcgmi diag`", "`dcgmi diag -j`")),
    (re.compile(r"^\| (?:Health Monitor Report|Overall Health)", re.M),
     _looks_like("the table of `dcgmi health`", "`dcgmi health -c -j`")),
    (re.compile(r"^\| (?:GROUPS|FIELD GROUPS|List Modules|Instance Hierarchy|Topology) ", re.M),
     _looks_like("a table of `dcgmi`", "`dcgmi diag -j` or `dcgmi discovery -l`")),
    (re.compile(r"^Worker \d+:\d+\[\d+\]: ", re.M),
     _looks_like("output of dcgmproftester", "`dcgmi diag -j`")),
    (re.compile(r"^.*\bpid\b.*,.*\bprocess_name\b", re.M),
     _looks_like("CSV of `nvidia-smi --query-compute-apps`", _SMI)),
    (re.compile(r"^\[\d+\] [^\s:]+: \[", re.M),
     _looks_like("Fluent Bit's `stdout`", "its `Format json_lines`")),
    (re.compile(r"^\s*NpuID\(Idx\) ", re.M),
     _looks_like("output of `npu-smi info watch`", "`npu-smi info`")),
    (re.compile(r"^\s*NPU ID +(?:Slot ID +)?Chip ID\b", re.M),
     _looks_like("output of `npu-smi info -m`", "`npu-smi info -t board -i NPU -c CHIP`")),
    (re.compile(r"\bnpu-smi\b"), _looks_like("output of npu-smi", "`npu-smi info`")),
    (re.compile(r"\bnhc\b.*Health check failed|/nhc\b"),
     _looks_like("output of Node Health Check")),
    (re.compile(r"^(?:# (?:HELP|TYPE) )?(?:amd_)?gpu_(?:gfx_activity|\w+_temperature)\b", re.M),
     _looks_like("metrics of an exporter of AMD", "`amd-smi metric --json`")),
    (re.compile(r"^# (?:HELP|TYPE) \w+", re.M),
     _looks_like("metrics without a field of DCGM", "the text of dcgm-exporter")),
    (re.compile(r"\brocm-smi\b|ROCm System Management"),
     _looks_like("output of rocm-smi", "`rocm-smi -a --json`")),
    (re.compile(r"\bamd-smi\b|AMDSMI Tool"),
     _looks_like("output of amd-smi", "`amd-smi metric --json`")),
)  # fmt: skip


_MAX_DAMAGED = 20  # of so many characters one may be no text
_COUNTERS = "`grep -s . /sys/class/infiniband/*/ports/*/counters/*`"
_LISTING = "`nvidia-smi -q`"
_IPMI_STATES = r"(?:ok|ns|nc|cr|nr|na)"
# Tools that hosts have besides nvidia-smi and dcgmi: first lines, name, what is read instead.
_OTHER_TOOLS = tuple(
    (re.compile(pattern, re.MULTILINE), _looks_like(what, instead))
    for pattern, what, instead in (
        (r"^\ufffd7zXZ|^PK\x03\x04|^\(\ufffd/\ufffd|^BZh\d|^[^\n]{257}ustar|ustar(?:\0| {2})",
         "an archive", "its files, unpacked or each as `.gz`,"),
        (r"\ALPKSHHRH", "a journal of systemd", "`journalctl --file FILE -k -o json`"),
        (r"^sos ?(?:report|collector)? \(version", "the log of sosreport",
         "its `sos_commands/kernel/dmesg` and `sos_commands/logs/journalctl`"),
        (r"^ *[0-9a-f]+ +\| *(?:\d\d/\d\d/\d{2,4}|Pre-Init|PostInit)[^|\n]*\|[^|\n]*\|",
         "output of `ipmitool sel`", _KERNEL_LOG),
        (rf"^[^|\n]{{1,40}}\|[^|\n]*\|(?:[^|\n]*\|)? *{_IPMI_STATES} *(?:\||$)",
         "output of `ipmitool sdr` or `ipmitool sensor`", _LISTING),
        (r'"@odata\.(?:id|type)"\s*:', "an answer of Redfish", _KERNEL_LOG),
        (r"^\s*GPU0\s+(?:GPU1|NIC0|CPU Affinity)", "output of `nvidia-smi topo`", _LISTING),
        (r"^\s*Link \d+: (?:[\d.]+ GB/s|<inactive>)", "output of `nvidia-smi nvlink`",
         f"{_LISTING} or `nvidia-smi -L`"),
        (r"^\s+Active vGPUs +:|^\s+vGPU ID +:", "output of `nvidia-smi vgpu`",
         f"{_LISTING} of the host"),
        (r"^\d+, *\w+, *\d{16}, ", "output of `nvidia-smi stats`", _SMI),
        (r"^\| GPU instances:|^\| Compute instances:", "output of `nvidia-smi mig`", _LISTING),
        (r"^\[(?:\d+|[\w.:]+)\] .+\| +\d+['°]C", "output of gpustat", "`gpustat --json`"),
        (r'"gpu_util"\s*:', "output of nvtop", _SMI),
        (r'Freq MHz +IRQ +RC6|"rc6"\s*:', "output of intel_gpu_top", ""),
        (r"\bRAM \d+/\d+MB .*\bGR3D_FREQ\b", "output of tegrastats", ""),
        (r"\[(?:INFO|ERROR|WARN\w*|FATAL|DEBUG)\] \[tid \d+\]|\bnvlsm: |\bOpenSM \d",
         "a log of the fabric manager", _KERNEL_LOG),
        (r"^CA '\S+'|^Infiniband device '|^\S+ port \d+ ==> ", "output of ibstat", _COUNTERS),
        (r"^Errors for (?:0x\w+ )?\"", "output of ibqueryerrors",
         _COUNTERS),
        (r"^=+ \./\w+ =+$", "counters of a port that is not named", _COUNTERS),
        (r"/sys/devices/system/edac/mc/|^mc\d+: (?:csrow|\d+ [UC]E)", "counters of EDAC",
         _KERNEL_LOG),
        (r"^(?:MCE|Memory controller|PCIe AER) (?:events|records)|^No \S+ (?:AER )?errors\.",
         "output of rasdaemon", _KERNEL_LOG),
        (r"^Hardware event\. This is not a software error", "output of mcelog", _KERNEL_LOG),
        (r"^(?:kernel: )?(?:\{\d+\}\[Hardware Error\]|(?:mce: )?\[Hardware Error\]|NVRM: |EDAC |"
         r"mlx5_core |pcieport )", "kernel messages without times",
         "`dmesg -T`, or `journalctl -k`,"),
        (r"^(?:[0-9a-f]{4}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7] \S.+: ", "output of lspci", _LISTING),
        (r"^ *Job_?ID(?:Raw)?\b[ |]|^ *JOBID +PARTITION|^(?:NodeName|JobId)=\S",
         "output of Slurm", "`sacctmgr show event -P` with `respond --slurm-history`"),
        (r"The FreeBSD Project|\bDarwin Kernel|\"eventMessage\"\s*:|schemas\.microsoft\.com/win",
         "a log of another system than Linux", "the kernel log of a Linux host"),
        (r"^# nccl-tests|out-of-place +in-place|# +\(B\) +\(elements\)", "output of nccl-tests",
         "it with `forewarn diagnose nodes`"),
        (r'"resultType"\s*:\s*"(?:matrix|vector)"', "an answer of Prometheus",
         "`--prometheus URL`"),
        (r'^smartctl \d|"smartctl"\s*:', "output of smartctl", ""),
        (r"^Adapter: \S|^Package id \d+: ", "output of sensors", _LISTING),
        (r"^top - \d\d:|^procs -+memory-+|^ +total +used +free", "output of top, vmstat or free",
         "the text of node_exporter"),
        (r"^\s*<(?:!doctype )?html", "a web page", ""),
    )
)  # fmt: skip


def describe_text(text: str, unknown: str = "a file of unknown kind") -> str:
    """Describe a file that no parser reads, and what to do about it.

    Parameters
    ----------
    text : str
        Its first 4,000 characters count.
    unknown : str, optional
        Returned where nothing is known.

    Examples
    --------
    >>> describe_text("| npu-smi 24.1 |")
    'looks like output of npu-smi, which is not read; `npu-smi info` would be'
    >>> describe_text("hello")
    'a file of unknown kind'
    """
    head = text.lstrip("\ufeff \r\n\0")[:4000].replace("\r\n", "\n")
    for form, what in (*_TEXT_PATTERNS, *_OTHER_TOOLS):
        if form.search(head):
            return what
    is_binary = _MAX_DAMAGED * head.count("\ufffd") > len(head) > 0
    return _looks_like("a binary file", "the text that its tool prints") if is_binary else unknown


def describe_json(value: Any) -> str | None:
    """Describe a JSON value that is no agent batch; None if it is unknown.

    Examples
    --------
    >>> describe_json({"readings": []})
    """
    if isinstance(value, list) and value:
        value = value[0]
    if not isinstance(value, Mapping):
        return None
    names = {str(name) for name in value}
    if names & {"log", "message", "msg", "MESSAGE"}:
        return _looks_like("lines of a log collector, which do not say who wrote them", _KERNEL_LOG)
    return None
