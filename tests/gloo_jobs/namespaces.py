"""Network namespaces of Linux as machines of two leaves; needs root, `ip` and `tc` with tbf."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

__all__ = ["Fabric", "fabric"]

_BRIDGES = ("fwleaf0", "fwleaf1", "fwspine")
_LEAF_NETS = ("10.97.0.0/25", "10.97.0.128/25")


@dataclass
class Fabric:
    """Machines in namespaces that are called like their addresses.

    Attributes
    ----------
    hosts : list of str
        Those of the first leaf first.
    """

    hosts: list[str] = field(default_factory=list)

    def slow_host(self, host: str, rate: str) -> None:
        """Limit what a machine sends and receives."""
        for cable in ("eth0", "eth1"):
            _run("tc", "-n", host, "qdisc", "replace", "dev", cable, "root", *_tbf(rate))
            outer = f"fw{cable}-{_number(host)}"
            _run("tc", "qdisc", "replace", "dev", outer, "root", *_tbf(rate))

    def slow_link(self, host: str, other: str, rate: str) -> None:
        """Send what two machines exchange over a slow cable of their own."""
        _run("ip", "-n", host, *_cable("direct", other, "direct"))
        for own, partner in ((host, other), (other, host)):
            _run("ip", "-n", own, "link", "set", "direct", "up")
            _run("tc", "-n", own, "qdisc", "add", "dev", "direct", "root", *_tbf(rate))
            _run("ip", "-n", own, "route", "add", f"{partner}/32", "dev", "direct", "src", own)

    def set_link(self, host: str, state: str) -> None:
        """Take the links of a machine `up` or `down`."""
        for cable in ("eth0", "eth1"):
            _run("ip", "link", "set", f"fw{cable}-{_number(host)}", state)


def _tbf(rate: str) -> tuple[str, ...]:
    return ("tbf", "rate", rate, "burst", "128kbit", "latency", "100ms")


def _cable(name: str, host: str, inner: str) -> tuple[str, ...]:
    """Return the arguments that add a cable, with its other end in a machine."""
    return ("link", "add", name, "type", "veth", "peer", "name", inner, "netns", host)


def _number(host: str) -> int:
    return int(host.rpartition(".")[2])


def _run(*command: str) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        reason = "" if done.returncode == 0 else (done.stderr or done.stdout).strip()
    except OSError as error:
        reason = str(error)
    if reason:
        raise RuntimeError(f"`{' '.join(command)}` is not possible here: {reason}")


@contextmanager
def fabric(n: int, *, leaf_rate: str, spine_rate: str) -> Iterator[Fabric]:
    """Build n machines, half of them on each leaf, with a cable to the leaf and one to the spine.

    Parameters
    ----------
    n : int
        Even, at most 200.
    leaf_rate, spine_rate : str
        Limits of each cable, as `400mbit`.

    Raises
    ------
    RuntimeError
        If namespaces or traffic control are not allowed, with the reason.
    """
    hosts = [f"10.97.0.{128 * leaf + k + 1}" for leaf in range(2) for k in range(n // 2)]
    _clean(hosts)
    try:
        for bridge in _BRIDGES:
            _run("ip", "link", "add", bridge, "type", "bridge")
            _run("ip", "link", "set", bridge, "up")
        for host in hosts:
            _add_host(host, leaf_rate, spine_rate)
        yield Fabric(hosts)
    finally:
        _clean(hosts)


def _add_host(host: str, leaf_rate: str, spine_rate: str) -> None:
    leaf = int(_number(host) > 128)
    _run("ip", "netns", "add", host)
    _run("ip", "-n", host, "link", "set", "lo", "up")
    cables = (("eth0", _BRIDGES[leaf], leaf_rate), ("eth1", _BRIDGES[2], spine_rate))
    for cable, bridge, rate in cables:
        outer = f"fw{cable}-{_number(host)}"
        _run("ip", *_cable(outer, host, cable))
        _run("ip", "link", "set", outer, "master", bridge, "up")
        _run("ip", "-n", host, "link", "set", cable, "up")
        _run("tc", "-n", host, "qdisc", "add", "dev", cable, "root", *_tbf(rate))
    _run("ip", "-n", host, "addr", "add", f"{host}/25", "dev", "eth0")
    _run("ip", "-n", host, "route", "add", _LEAF_NETS[1 - leaf], "dev", "eth1", "src", host)


def _clean(hosts: list[str]) -> None:
    commands = [("ip", "netns", "del", host) for host in hosts]
    commands += [("ip", "link", "del", name) for name in _BRIDGES]
    for command in commands:
        subprocess.run(command, capture_output=True, check=False)
