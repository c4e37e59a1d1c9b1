"""Stack of a rank's main thread, as written by `py-spy dump --json`."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import msgspec

from forewarn.features.errors import InputError

__all__ = [
    "MAX_FRAMES",
    "BrokenStackError",
    "Frame",
    "Stack",
    "classify_wait",
    "data_request",
    "is_host_wait",
    "main_process",
]

MAX_FRAMES = 512
_MAX_INNERMOST_FRAMES = 12  # frames searched for a wait

# Functions that wait for other ranks if their file belongs to a collective library.
_LIBRARIES = re.compile(
    r"torch/distributed/|torch/_C|c10d|nccl|gloo|p2p_communication|deepspeed/comm|"
    r"distributed_c10d|megatron/core/(pipeline_parallel|tensor_parallel|distributed)",
    re.IGNORECASE,
)
_RECEIVES = re.compile(r"_?(i?recv\w*|batch_isend_irecv|send_\w*recv\w*|recv_\w+)", re.IGNORECASE)
_BARRIERS = re.compile(r"\w*barrier\w*", re.IGNORECASE)
_COLLECTIVES = re.compile(
    r"_?(all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|broadcast|reduce|gather|scatter|"
    r"i?send|wait|synchronize|_coalescing_manager)\w*",
    re.IGNORECASE,
)
_DEVICE_WAITS = re.compile(r"(_?cuda_?)?synchronize|wait_event|wait_stream")
_DATA_REQUESTS = re.compile(r"__next__|__getitems?__")  # Python protocol methods
_HOST_WAIT_FILES = re.compile(
    r"(?:.*/)?(?:threading|queue|selectors|socket|ssl|subprocess|multiprocessing/\w+|concurrent/\w+"
    r"|asyncio/\w+)\.py"
)
_DEVICE_FILES = re.compile(r"torch/(cuda|accelerator)/")


class BrokenStackError(InputError):
    """A stack file that cannot be used."""


class Frame(NamedTuple):
    """One stack frame.

    Attributes
    ----------
    name : str
    file : str
    line : int
    """

    name: str
    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.name} ({self.file.rpartition('/')[2]}:{self.line})"


Stack = tuple[Frame, ...]  # innermost frame first


class _Call(msgspec.Struct, gc=False):
    name: str
    filename: str = ""
    line: int = 0


class _Thread(msgspec.Struct, gc=False):
    frames: list[_Call]
    pid: int = 0
    os_thread_id: int | None = None
    thread_name: str | None = None


_DECODER = msgspec.json.Decoder(list[_Thread])


def main_process(data: bytes) -> tuple[int, Stack]:
    """Return the number of the process, 0 if unknown, and the stack of its main thread.

    Parameters
    ----------
    data : bytes
        JSON list of threads with their frames, innermost first.

    Raises
    ------
    BrokenStackError
        If the data is not such a list, or no thread has a frame.
    """
    try:
        threads = _DECODER.decode(data)
    except (msgspec.DecodeError, RecursionError) as error:
        raise BrokenStackError(f"is truncated or not a stack: {error}") from None
    threads = [thread for thread in threads if thread.frames]
    if not threads:
        raise BrokenStackError("contains no frame")
    main = max(threads, key=_is_main)
    calls = main.frames[:MAX_FRAMES]
    return main.pid, tuple(Frame(call.name, call.filename, call.line) for call in calls)


def _is_main(thread: _Thread) -> tuple[bool, bool]:
    return thread.thread_name == "MainThread", thread.os_thread_id == thread.pid > 0


def classify_wait(stack: Stack) -> str | None:
    """Return the kind of wait for other ranks: `recv`, `barrier`, `collective` or `device`.

    Returns None if the stack is in none of these, such as in the program, the data loader or a
    file.

    Examples
    --------
    >>> classify_wait((Frame("wait", "threading.py", 320), Frame("get", "queue.py", 171))) is None
    True
    >>> classify_wait((Frame("barrier", "torch/distributed/distributed_c10d.py", 4000),))
    'barrier'
    """
    calls = [call for call in stack[:_MAX_INNERMOST_FRAMES] if _LIBRARIES.search(call.file)]
    for pattern, word in ((_RECEIVES, "recv"), (_BARRIERS, "barrier"), (_COLLECTIVES, "")):
        if any(pattern.fullmatch(call.name) for call in calls):
            return word or "collective"
    inner: Any = stack[:2]
    if any(_DEVICE_FILES.search(call.file) and _DEVICE_WAITS.match(call.name) for call in inner):
        return "device"
    return None


def data_request(stack: Stack) -> Frame | None:
    """Return the frame in which the rank waits for the next data of an iterator, or None.

    Examples
    --------
    >>> data_request((Frame("get", "queue.py", 171), Frame("__next__", "dataloader.py", 628))).line
    628
    """
    return next((call for call in stack if _DATA_REQUESTS.fullmatch(call.name)), None)


def is_host_wait(stack: Stack) -> bool:
    """Return whether the rank waits for a thread, a process or data of its own host.

    A rank elsewhere may still be blocked by its device: a full queue blocks any operation.

    Examples
    --------
    >>> is_host_wait((Frame("wait", "/usr/lib/python3.12/threading.py", 320),))
    True
    >>> is_host_wait((Frame("forward", "torch/nn/modules/linear.py", 125),))
    False
    """
    is_in_library = _HOST_WAIT_FILES.fullmatch(stack[0].file) is not None
    return is_in_library or data_request(stack[:_MAX_INNERMOST_FRAMES]) is not None
