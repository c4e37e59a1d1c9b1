"""Severity of each Xid, from NVIDIA's catalogue and the practice of eight tools.

Where the sources disagree, a code is fatal only if NVIDIA asks for a reset, a reboot or immediate
support, or if most tools take the GPU out of service for it.
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

# The GPU, its memory, link or firmware does not work until a reset or replacement.
FATAL_XIDS = (
    46, 48, 54, 62, 64, 74, 79, 95, 109, 110, 119, 120, 136, 140, 143, 151, 155, 156, 158, 167,
    171, 172,
)  # fmt: skip
# The GPU works, but hardware was repaired or retired, or is wearing out.
DEGRADED_XIDS = (
    61, 63, 92, 93, 94, 121, 123, 137, 144, 145, 146, 147, 148, 149, 150, 154, 157, 159, 160, 161,
    168,
)  # fmt: skip
# NVLink 5 errors: the driver's message says whether the error is fatal or nonfatal.
NVLINK_XIDS = (144, 145, 146, 147, 148, 149, 150)
# Recovery actions that a GPU needs to work. A GPU that only has to be drained still works.
FATAL_ACTIONS = ("reset", "reboot")
