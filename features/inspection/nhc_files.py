"""Files of LBNL Node Health Check (`pattern || check arguments`) as checks of ours.

Source: the sample configuration and the documentation of Node Health Check 1.4.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, Final

from forewarn.features.hostlist import HostlistError, expand
from forewarn.features.inspection.check_table import CheckTable

__all__ = ["NhcChecks", "parse_nhc_file"]

_SIZES: Final = {"": 1, "k": 1, "m": 2**10, "g": 2**20, "t": 2**30}  # KiB; a bare number is kB
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?)i?b?", re.IGNORECASE)
_SHELL = re.compile(r"[$`;&|<>]")
_MAX_LINES: Final = 10_000


@dataclass(slots=True)
class NhcChecks:
    """What a file of Node Health Check asks of a machine.

    Attributes
    ----------
    checks : dict of str to CheckTable
        Those that are understood, in the set `nhc`.
    others : list of str
        Lines for this machine that are not, with their numbers.
    """

    checks: dict[str, CheckTable] = field(default_factory=dict)
    others: list[str] = field(default_factory=list)


class _UnknownFormError(ValueError):
    """Arguments that are not understood."""


def parse_nhc_file(text: str, machine: str) -> NhcChecks:
    r"""Return the checks of a machine.

    Variables (`export`) are left out: they configure Node Health Check itself.

    Parameters
    ----------
    text : str
    machine : str

    Examples
    --------
    >>> result = parse_nhc_file("* || check_ps_loadavg 24\nlogin* || check_hw_eth eth1", "node-1")
    >>> list(result.checks), result.others
    (['nhc_1_ps_loadavg'], [])
    """
    result = NhcChecks()
    for number, line in enumerate(text.splitlines()[:_MAX_LINES], 1):
        pattern, bars, check = (part.strip() for part in line.partition("||"))
        if not bars or pattern.startswith("#") or not _matches(pattern, machine):
            continue
        if check.startswith("export "):
            continue
        try:
            name, *args = shlex.split(check, comments=True)
            tables = _FORMS[name](args)
            if _SHELL.search(check):
                raise _UnknownFormError
            parsed = [CheckTable.model_validate({**_BASE, **table}) for table in tables]
        except (KeyError, ValueError, IndexError):  # ValidationError of pydantic is a ValueError
            result.others.append(f"line {number}: {check[:200]}")
            continue
        for part, table in enumerate(parsed):
            suffix = f"_{part + 1}" if len(parsed) > 1 else ""
            result.checks[f"nhc_{number}_{name.removeprefix('check_')}{suffix}"[:64]] = table
    return result


_BASE: Final[dict[str, Any]] = {"when": ["nhc"], "description": "of Node Health Check"}


def _matches(pattern: str, machine: str) -> bool:
    """Tell whether a glob, a `/regular expression/` or a `{node range}` is of a machine."""
    if pattern.startswith("!"):
        return not _matches(pattern[1:].strip(), machine)
    if len(pattern) > 1 and pattern.startswith("/") and pattern.endswith("/"):
        try:
            return bool(re.search(pattern[1:-1], machine))
        except re.error:
            return False
    if pattern.startswith("{") and pattern.endswith("}"):
        try:
            return machine in expand(pattern[1:-1])
        except HostlistError:
            return False
    return fnmatchcase(machine, pattern)


def _kib(text: str) -> float:
    match = _SIZE.fullmatch(text)
    if match is None:
        raise _UnknownFormError
    return float(match[1]) * _SIZES[match[2].lower()]


def _limits(args: Sequence[str]) -> dict[str, float]:
    """Return the limits of `MINIMUM [MAXIMUM] [FUDGE%]`, in KiB."""
    fudge = 0.0
    if args[-1].endswith("%"):
        fudge, args = float(args[-1][:-1]) / 100.0, args[:-1]
    limits = {"min": _kib(args[0]) * (1.0 - fudge)}
    if len(args) > 1:
        limits["max"] = _kib(args[1]) * (1.0 + fudge)
    return limits


def _meminfo(key: str) -> Callable[[Sequence[str]], list[dict[str, Any]]]:
    def tables(args: Sequence[str]) -> list[dict[str, Any]]:
        value = {"file": "/proc/meminfo", "regex": rf"^{key}: +(\d+) kB", "unit": "KiB"}
        return [{"value": value, "limit": _limits(args), "category": "memory"}]

    return tables


def _cpuinfo(args: Sequence[str]) -> list[dict[str, Any]]:
    return [
        {
            "value": {"builtin": "cpu_topology", "args": [part], "unit": "count"},
            "limit": {"min": int(count), "max": int(count)},
            "category": "cpu",
        }
        for part, count in zip(("sockets", "cores", "threads"), args, strict=False)
    ]


def _port(args: Sequence[str]) -> list[dict[str, Any]]:
    (name,) = args
    value = {"file": f"/sys/class/net/{name}/operstate", "words": {"up": 1, "down": 0}}
    return [{"value": {**value, "unit": "state"}, "limit": {"min": 1}, "category": "network"}]


def _infiniband(args: Sequence[str]) -> list[dict[str, Any]]:
    """Read `RATE DEVICE[:PORT]`; without a device any port would do, which is no check of one."""
    rate, device = args
    name, _, port = device.partition(":")
    folder = f"/sys/class/infiniband/{name}/ports/{port or 1}"
    speed = {"file": f"{folder}/rate", "regex": r"^([\d.]+) Gb", "unit": "Gbit/s"}
    state = {"file": f"{folder}/state", "regex": r"^(\d)", "unit": "state"}
    return [
        {"value": state, "limit": {"min": 4}, "category": "network"},
        {"value": speed, "limit": {"min": float(rate)}, "category": "network"},
    ]


def _free(what: str) -> Callable[[Sequence[str]], list[dict[str, Any]]]:
    def tables(args: Sequence[str]) -> list[dict[str, Any]]:
        folder, least = args
        if least.endswith("%"):
            kind, limit = f"{what}_share", float(least[:-1])
        else:  # sizes are of KiB, numbers of inodes as they are
            kind = what
            limit = _kib(least) * (1000.0 if what == "inodes" and least[-1:] in "kK" else 1.0)
        value = {"builtin": "free_space", "args": [kind, folder], "unit": "1"}
        return [{"value": value, "limit": {"min": limit}, "category": "storage"}]

    return tables


def _options(args: Sequence[str], flags: str, valued: str) -> tuple[dict[str, str], list[str]]:
    """Split arguments into options with and without a value, and the rest."""
    options: dict[str, str] = {}
    rest: list[str] = []
    items = iter(args)
    for item in items:
        if item.startswith("-") and len(item) == 2 and item[1] in flags + valued:
            options[item[1]] = next(items) if item[1] in valued else ""
        elif item.startswith("-"):
            raise _UnknownFormError
        else:
            rest.append(item)
    return options, rest


def _mount(args: Sequence[str], *, writable: bool) -> list[dict[str, Any]]:
    options, rest = _options(args, "", "ft")
    folder = options.get("f") or rest[0]
    kind = re.escape(options["t"]) if "t" in options else r"\S+"
    mode = "rw" if writable else r"\w"
    pattern = rf"^\S+ {re.escape(folder)} {kind} {mode}"
    value = {"file": "/proc/mounts", "lines": pattern, "unit": "count"}
    return [{"value": value, "limit": {"min": 1}, "category": "storage"}]


def _file_test(args: Sequence[str]) -> list[dict[str, Any]]:
    options, paths = _options(args, "rwxdfsekcbL", "")
    if not options or not paths:
        raise _UnknownFormError
    return [
        {
            "value": {"builtin": "file_test", "args": ["".join(options), path], "unit": "state"},
            "limit": {"min": 1},
            "category": "storage",
        }
        for path in paths
    ]


def _process(args: Sequence[str]) -> list[dict[str, Any]]:
    """Read the name of a program; options that would start it again are not followed."""
    options, rest = _options(args, "rSscfk0nv", "udVeE")
    name = options.get("d") or rest[0]
    value = {"builtin": "processes", "args": [name], "unit": "count"}
    return [{"value": value, "limit": {"min": 1}, "category": "software"}]


def _load(args: Sequence[str]) -> list[dict[str, Any]]:
    return [
        {
            "value": {
                "file": "/proc/loadavg",
                "regex": rf"^(?:\S+ ){{{n}}}(\S+)",
            },
            "limit": {"max": float(limit)},
            "category": "cpu",
        }
        for n, limit in enumerate(args[:3])
    ]


_FORMS: Final[dict[str, Callable[[Sequence[str]], list[dict[str, Any]]]]] = {
    "check_hw_cpuinfo": _cpuinfo,
    "check_hw_physmem": _meminfo("MemTotal"),
    "check_hw_physmem_free": _meminfo("MemAvailable"),
    "check_hw_swap": _meminfo("SwapTotal"),
    "check_hw_swap_free": _meminfo("SwapFree"),
    "check_hw_eth": _port,
    "check_hw_ib": _infiniband,
    "check_fs_free": _free("space"),
    "check_fs_ifree": _free("inodes"),
    "check_fs_mount": lambda args: _mount(args, writable=False),
    "check_fs_mount_rw": lambda args: _mount(args, writable=True),
    "check_file_test": _file_test,
    "check_ps_service": _process,
    "check_ps_daemon": lambda args: _process(args[:1]),
    "check_ps_loadavg": _load,
}
