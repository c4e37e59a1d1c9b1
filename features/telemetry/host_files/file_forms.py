"""Kinds of host files: their recognition and their parsers. A new kind needs only a row here."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from forewarn.features.telemetry.amd.smi_json import is_smi_json
from forewarn.features.telemetry.amd.smi_output import is_smi_output, parse_smi_output
from forewarn.features.telemetry.ascend.smi_output import (
    is_npu_output,
    parse_npu_health,
    parse_npu_output,
)
from forewarn.features.telemetry.checks.check_result import CheckResult
from forewarn.features.telemetry.checks.dcgm_checks import (
    is_dcgm_diagnostic,
    is_dcgm_health,
    parse_dcgm_diagnostic,
    parse_dcgm_health,
)
from forewarn.features.telemetry.checks.dcgm_gpu_list import is_dcgm_gpu_list, parse_dcgm_gpu_list
from forewarn.features.telemetry.checks.nhc_checks import (
    is_drain_reasons,
    is_nhc_log,
    parse_drain_reasons,
    parse_nhc_log,
)
from forewarn.features.telemetry.checks.node_conditions import (
    is_node_description,
    is_node_json,
    is_problem_log,
    parse_node_description,
    parse_node_json,
    parse_problem_log,
)
from forewarn.features.telemetry.network.counter_text import is_counter_text
from forewarn.features.telemetry.nvidia_smi.bug_report import (
    is_gpu_information,
    parse_gpu_information,
)
from forewarn.features.telemetry.nvidia_smi.device_monitor import (
    is_device_monitor,
    parse_device_monitor,
)
from forewarn.features.telemetry.nvidia_smi.faults import lost_gpus
from forewarn.features.telemetry.nvidia_smi.gpu_list import is_gpu_list, parse_gpu_list
from forewarn.features.telemetry.nvidia_smi.gpustat import is_gpustat, parse_gpustat
from forewarn.features.telemetry.nvidia_smi.query_csv import is_header, parse_query_gpu
from forewarn.features.telemetry.nvidia_smi.query_text import is_query_text, parse_query_text
from forewarn.features.telemetry.nvidia_smi.query_xml import parse_nvidia_smi_documents
from forewarn.features.telemetry.nvidia_smi.smi_table import is_smi_table, parse_smi_table
from forewarn.features.telemetry.parsers.gpu_reading import GpuReading, Unread
from forewarn.features.telemetry.parsers.log_line import is_kernel_log
from forewarn.features.telemetry.parsers.log_time import HostClock

__all__ = ["FORMS", "HostFileForm", "detect_form"]

_METRIC = re.compile(
    r"^(?:# (?:HELP|TYPE) )?(?:DCGM_(?:FI|EXP)_|npu_chip_info_|machine_npu_)\w+", re.MULTILINE
)
_PROC_STAT = re.compile(r"^(?:cpu +\d+ \d+ |btime \d)", re.MULTILINE)
_HEAD_CHARS = 2000


class HostFileForm(NamedTuple):
    """The recognition and the parsers of one kind of file.

    Attributes
    ----------
    kind : str
        Name in reports.
    matches : callable
        Tells whether the first 2,000 characters of a file are of this kind.
    gpus : callable or None
        Reads the GPUs of a whole file.
    checks : callable or None
        Reads the health check results of a whole file.
    names_only : bool
        The GPUs are not measured; the file says which index each has.
    log_checks : callable or None
        Reads the health check results in a log, whose times the clock of the host completes.
    """

    kind: str
    matches: Callable[[str], bool]
    gpus: Callable[[str], tuple[list[GpuReading], Unread]] | None = None
    checks: Callable[[str], tuple[list[CheckResult], Unread]] | None = None
    names_only: bool = False
    log_checks: Callable[[str, HostClock], tuple[list[CheckResult], Unread]] | None = None


def detect_form(text: str) -> HostFileForm | None:
    """Return the kind of a file by its content; None if it is unknown."""
    head = text.lstrip("\ufeff \r\n\0")[:_HEAD_CHARS].replace("\0", "")
    return next((form for form in FORMS if form.matches(head)), None)


def _is_gpu_list(head: str) -> bool:
    """Tell `nvidia-smi -L` from `nvidia-smi nvlink`, which lists links below each GPU."""
    return is_gpu_list(head) and not re.search(r"^\s*Link \d+: ", head, re.MULTILINE)


def _is_json(head: str) -> bool:
    return bool(re.match(r"(?:\[\s*)?\{", head))


def _is_csv(head: str) -> bool:
    lines = [line for line in head.splitlines()[:-1] or head.splitlines() if line.strip()]
    headers = [line for line in lines if "," in line and is_header(line)]
    of_processes = any(re.search(r"\bpid\b", line) for line in headers)
    return bool(lost_gpus(head)) or (bool(headers) and not of_processes)


# The first matching form wins. Logs come first, since a log can quote any text while no
# other form has log lines. `host_files` reads kinds without `gpus` and `checks` itself.
FORMS: tuple[HostFileForm, ...] = (
    HostFileForm("nhc", is_nhc_log, log_checks=parse_nhc_log),
    HostFileForm("kernel_log", is_kernel_log, log_checks=parse_nhc_log),
    HostFileForm("dcgm_diag", is_dcgm_diagnostic, checks=parse_dcgm_diagnostic),
    HostFileForm("dcgm_health", is_dcgm_health, checks=parse_dcgm_health),
    HostFileForm("gpustat", is_gpustat, parse_gpustat),
    HostFileForm("amd_json", is_smi_json, parse_smi_output),
    HostFileForm("node_json", is_node_json, checks=parse_node_json),
    HostFileForm("batch", _is_json),
    HostFileForm("node_description", is_node_description, checks=parse_node_description),
    HostFileForm("problem_log", is_problem_log, checks=parse_problem_log),
    HostFileForm("drain_reasons", is_drain_reasons, checks=parse_drain_reasons),
    HostFileForm("xml", lambda head: "<nvidia_smi_log" in head, parse_nvidia_smi_documents),
    HostFileForm("text", is_query_text, parse_query_text),
    HostFileForm("metrics", lambda head: bool(_METRIC.search(head))),
    HostFileForm("ports", is_counter_text),
    HostFileForm("stat", lambda head: bool(_PROC_STAT.search(head))),
    HostFileForm("table", is_smi_table, parse_smi_table),
    HostFileForm("dmon", is_device_monitor, parse_device_monitor),
    HostFileForm("list", _is_gpu_list, parse_gpu_list, names_only=True),
    HostFileForm("dcgm_list", is_dcgm_gpu_list, parse_dcgm_gpu_list, names_only=True),
    HostFileForm("gpu_information", is_gpu_information, parse_gpu_information, names_only=True),
    HostFileForm("amd", is_smi_output, parse_smi_output),
    HostFileForm("ascend", is_npu_output, parse_npu_output, checks=parse_npu_health),
    HostFileForm("csv", _is_csv, parse_query_gpu),
)
