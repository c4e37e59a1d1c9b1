"""Names of hosts: the short name, the full name and the address of a machine mean the same."""

from __future__ import annotations

import ipaddress
import re
from functools import lru_cache

__all__ = ["host_key"]

_PORT = re.compile(r"<\d+>$")
_CLOUD_NAME = re.compile(r"(?:ip-)?(\d{1,3})-(\d{1,3})-(\d{1,3})-(\d{1,3})")


@lru_cache(maxsize=2**14)
def host_key(host: str) -> str:
    """Return a key that all forms of a host's name share.

    It leaves out the domain, brackets and a port in angle brackets. Clouds name a machine after
    its address, as in `ip-10-0-0-4`, so that the key of such a name is the address.

    Examples
    --------
    >>> host_key("node-2.example.org"), host_key("[Node-2]<4711>")
    ('node-2', 'node-2')
    >>> host_key("ip-10-0-0-4.internal"), host_key("10.0.0.4"), host_key("::ffff:10.0.0.4")
    ('10.0.0.4', '10.0.0.4', '10.0.0.4')
    """
    name = _PORT.sub("", host.strip()).strip("[]").rstrip(".").lower()
    address = _address(name)
    if address is not None:
        return address
    short = name.partition(".")[0]
    cloud = _CLOUD_NAME.fullmatch(short)
    return (_address(".".join(cloud.groups())) if cloud else None) or short


def _address(text: str) -> str | None:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(mapped or address)
