"""Severity of each Xid: our own table, from NVIDIA's catalogue and the practice of eight tools.

Where they disagree, the code counts as grave only if NVIDIA asks for a reset, a restart of the
machine or support at once, or if most tools take the GPU out for it.
"""

__all__ = [
    "APPLICATION",
    "DEGRADED",
    "DEGRADED_XIDS",
    "FATAL",
    "FATAL_ACTIONS",
    "FATAL_XIDS",
    "NVLINK_XIDS",
]

APPLICATION, DEGRADED, FATAL = 1, 2, 3

# The GPU or its memory, link or firmware does not work until it is reset or replaced.
FATAL_XIDS = (
    46, 48, 54, 62, 64, 74, 79, 95, 109, 110, 119, 120, 136, 140, 143, 151, 155, 156, 158, 167,
    171, 172,
)  # fmt: skip
# It works, but something in the hardware was repaired, retired or is wearing out.
DEGRADED_XIDS = (
    61, 63, 92, 93, 94, 121, 123, 137, 144, 145, 146, 147, 148, 149, 150, 154, 157, 159, 160, 161,
    168,
)  # fmt: skip
# Errors of NVLink 5: the driver's own word, fatal or nonfatal, says which of the two it is.
NVLINK_XIDS = (144, 145, 146, 147, 148, 149, 150)
# Recoveries without which the GPU does not work; while it is only to be drained it does.
FATAL_ACTIONS = ("reset", "reboot")
