"""Statistics of a network interface, as `ethtool -S` reads them, without a process."""

from __future__ import annotations

import array
import fcntl
import socket
import struct

__all__ = ["ethtool_statistics"]

_SIOCETHTOOL = 0x8946
_GET_COUNT, _GET_STRINGS, _GET_STATISTICS = 0x37, 0x1B, 0x1D  # linux/ethtool.h
_STATISTICS_SET = 1
_NAME_BYTES = 32
# Kernels before 6.18 write as many entries as the driver has by then, whatever they are told.
_SPARE = 4096


def ethtool_statistics(interface: str) -> list[tuple[str, int]]:
    """Return names and values; empty if the driver has none, or their number changes meanwhile.

    Raises
    ------
    OSError
        If there is no such interface, or it has no statistics.
    """
    count = array.array("B", struct.pack("IIQI", _GET_COUNT, 0, 1 << _STATISTICS_SET, 0))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        _ask(control, interface, count)
        (n,) = struct.unpack_from("I", count, 16)
        names = array.array("B", bytes(12 + _NAME_BYTES * (n + _SPARE)))
        values = array.array("B", bytes(8 + 8 * (n + _SPARE)))
        struct.pack_into("III", names, 0, _GET_STRINGS, _STATISTICS_SET, n)
        struct.pack_into("II", values, 0, _GET_STATISTICS, n)
        _ask(control, interface, names)
        _ask(control, interface, values)
    if {struct.unpack_from("I", names, 8)[0], struct.unpack_from("I", values, 4)[0]} != {n}:
        return []
    texts = (names[12 + i * _NAME_BYTES : 12 + (i + 1) * _NAME_BYTES].tobytes() for i in range(n))
    labels = [text.partition(b"\0")[0].decode("ascii", "replace").strip() for text in texts]
    return list(zip(labels, struct.unpack_from(f"{n}Q", values, 8), strict=True))


def _ask(control: socket.socket, interface: str, buffer: array.array[int]) -> None:
    """Let the kernel write its answer into a buffer."""
    request = struct.pack("16sP16x", interface.encode()[:15], buffer.buffer_info()[0])
    fcntl.ioctl(control, _SIOCETHTOOL, request)
