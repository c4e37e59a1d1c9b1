"""Last lines of the ranks of a crashed job: exceptions, what peers notice, and time-outs.

The forms are those of PyTorch 2.4 to 2.10, of CUDA, NCCL 2.21 to 2.27, gloo and the Linux kernel.
Fields are those of `LineWriter`.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["EXCEPTIONS", "KILLED_KERNEL_LINES", "PEERS", "TIMEOUTS", "CrashForm"]


@dataclass(frozen=True, slots=True)
class CrashForm:
    """Last lines of a rank.

    Attributes
    ----------
    lines : tuple of str
        On its stderr.
    kernel : tuple of str
        In the kernel log of its machine.
    """

    lines: tuple[str, ...]
    kernel: tuple[str, ...] = ()


_TRACE = (
    "Traceback (most recent call last):",
    '  File "/workspace/train.py", line 412, in <module>',
    "    main()",
    '  File "/workspace/train.py", line 371, in main',
)
_STEP = (*_TRACE, "    loss = train_step(model, batch)")
_BATCH = (*_TRACE, "    batch = next(batches)")
_SAVE = (*_TRACE, "    save_checkpoint(model, optimizer, step)")
_ASYNC = (
    "CUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below might be incorrect.",
    "For debugging consider passing CUDA_LAUNCH_BLOCKING=1",
    "Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.",
    "",
)

EXCEPTIONS = (
    CrashForm(
        (
            *_STEP,
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {short}.25 GiB. GPU {local} has a total capacity of 79.10 GiB of which 1.02 GiB is free. Including non-PyTorch memory, this process has 78.07 GiB memory in use. Of the allocated memory 74.11 GiB is allocated by PyTorch, and 1.93 GiB is reserved by PyTorch but unallocated.",
        )
    ),
    CrashForm(
        (*_STEP, "RuntimeError: CUDA error: an illegal memory access was encountered", *_ASYNC)
    ),
    CrashForm((*_STEP, "torch.AcceleratorError: CUDA error: unspecified launch failure", *_ASYNC)),
    CrashForm(
        (*_STEP, "RuntimeError: CUDA error: uncorrectable ECC error encountered", *_ASYNC),
        (
            "NVRM: Xid (PCI:0000:{short}b:00): 48, pid={pid}, name=python3, DBE (double bit error) at location 0x{n:05x} has been detected",
        ),
    ),
    CrashForm(
        (
            *_STEP,
            "RuntimeError: CUDA error: uncorrectable NVLink error detected during the execution",
            *_ASYNC,
        ),
        (
            "NVRM: Xid (PCI:0000:{short}b:00): 74, pid={pid}, name=python3, NVLink: fatal error detected on link {short}(0x10000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)",
        ),
    ),
    CrashForm(
        (
            *_STEP,
            "RuntimeError: Rank {rank}, node {host}, device {local}, iteration {step}: Unexpected result nan (message='found NaN in local forward loss calculation')",
        )
    ),
    CrashForm(
        (
            *_BATCH,
            "ValueError: could not broadcast input array from shape (40{short}2,) into shape (4096,)",
        )
    ),
    CrashForm((*_BATCH, "IndexError: index {n} is out of bounds for axis 0 with size 50{short}")),
    CrashForm(
        (*_BATCH, "RuntimeError: DataLoader worker (pid {thread}) is killed by signal: Killed. ")
    ),
    CrashForm((*_BATCH, "OSError: [Errno 5] Input/output error: '/mnt/corpus/shard-{n:05d}.bin'")),
    CrashForm(
        (
            *_SAVE,
            "OSError: [Errno 28] No space left on device: '/scratch/checkpoints/rank_{rank}.pt'",
        )
    ),
    CrashForm((*_STEP, "AssertionError: expected 4096 tokens, got 40{short}1")),
)

KILLED_KERNEL_LINES = (
    "python3 invoked oom-killer: gfp_mask=0x140cca(GFP_HIGHUSER_MOVABLE|__GFP_COMP), order=0, oom_score_adj=0",
    "Out of memory: Killed process {pid} (python3) total-vm:41{n}1236kB, anon-rss:20{n}8814kB, file-rss:1{n}kB, shmem-rss:9{n}kB, UID:1001 pgtables:5{n}kB oom_score_adj:0",
)

_E = "[rank{rank}]:[E{time:%m%d %H:%M:%S}.{ns} ProcessGroupNCCL.cpp:"
_PG = "[{group} Rank {group_rank}] "
_WHAT = "terminate called after throwing an instance of 'c10::DistBackendError'"
_REMOTE = "NCCL error: remote process exited or there was a network error, NCCL version 2.{nccl}"

# What a rank prints that loses a peer.
PEERS = {
    "nccl": (
        CrashForm((
            _E + "1895] " + _PG + "Process group watchdog thread terminated with exception: " + _REMOTE,
            "ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.",
            "Last error:",
            "socketPollConnect: Connect to {lost_address}<4{n:04d}> returned 111(Connection refused) errno 115(Operation now in progress)",
            _WHAT,
            "  what():  " + _PG + "Process group watchdog thread terminated with exception: " + _REMOTE,
        )),
        CrashForm((
            "{host}:{pid}:{thread} [{local}] socket.cpp:{n} NCCL WARN ncclSocketRecv: connection closed by remote peer {lost_address}<4{n:04d}>",
            *_STEP,
            "torch.distributed.DistBackendError: NCCL error in: /pytorch/torch/csrc/distributed/c10d/NCCLUtils.cpp:77, remote process exited or there was a network error, NCCL version 2.{nccl}",
            "ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.",
            "Last error:",
            "NET/IB: Got completion from peer {lost_address}<4{n:04d}> with status=12 opcode=0 len=0 vendor err 129 (Recv) localGid ::ffff:{address} remoteGids::ffff:{lost_address} hca mlx5_{local}",
        )),
    ),
    "gloo": (
        CrashForm((
            *_STEP,
            "RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [{lost_address}]:4{n:04d}",
        )),
    ),
}  # fmt: skip

_WORK = "WorkNCCL(SeqNum={sequence}, OpType={operation}, NumelIn={numel}, NumelOut={numel}, Timeout(ms)={timeout_ms}) ran for {ran_ms} milliseconds before timing out."
_CAUGHT = "[Rank {group_rank}] Watchdog caught collective operation timeout: " + _WORK
_ENQUEUED = "last enqueued NCCL work: {enqueued}, last completed NCCL work: {completed}."
_STATUS = " failure detected by watchdog at work sequence id: {sequence} PG status: last enqueued work: {enqueued}, last completed work: {completed}"
_NO_TRACE = "Stack trace of the failed collective not found, potentially because FlightRecorder is disabled. You can enable it by setting TORCH_NCCL_TRACE_BUFFER_SIZE to a non-zero value."
_DUMP = "Received a dump signal due to a collective timeout from this local rank and we will try our best to dump the debug info. Last enqueued NCCL work: {enqueued}, last completed NCCL work: {completed}.This is most likely caused by incorrect usages of collectives, e.g., wrong sizes used across ranks, the order of collectives is not same for all ranks or the scheduled collective, for some reason, didn't run. Additionally, this can be caused by GIL deadlock or other reasons such as network errors or bugs in the communications library (e.g. NCCL), etc. "
_CORRUPTED = "[Rank {group_rank}] Some NCCL operations have failed or timed out. Due to the asynchronous nature of CUDA kernels, subsequent GPU operations might run on corrupted/incomplete data."
_DOWN = "[Rank {group_rank}] To avoid data inconsistency, we are taking the entire process down."
_ENDED = "Process group watchdog thread terminated with exception: " + _CAUGHT
_FRAMES = (
    "Exception raised from checkTimeout at /pytorch/torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:632 (most recent call first):",
    "frame #0: c10::Error::Error(c10::SourceLocation, std::string) + 0x98 (0x7f{n:05x}5e8 in /usr/local/lib/python3.12/dist-packages/torch/lib/libc10.so)",
    "frame #1: c10d::ProcessGroupNCCL::WorkNCCL::checkTimeout(std::optional<std::chrono::duration<long, std::ratio<1l, 1000l> > >) + 0x23d (0x7f{n:05x}a4d in /usr/local/lib/python3.12/dist-packages/torch/lib/libtorch_cuda.so)",
    "frame #2: c10d::ProcessGroupNCCL::watchdogHandler() + 0xc80 (0x7f{n:05x}6b0 in /usr/local/lib/python3.12/dist-packages/torch/lib/libtorch_cuda.so)",
    "",
)


def _timeout(caught: int, status: str, status_line: int, ended: int) -> CrashForm:
    """Return the lines of one version of PyTorch, whose files have other line numbers."""
    return CrashForm((
        f"{_E}{caught}] {_CAUGHT}",
        f"{_E}{status_line}] {_PG}{status}",
        f"{_E}{caught + 38}] {_NO_TRACE}",
        f"{_E}{ended - 120}] {_PG}{_DUMP}",
        f"{_E}{caught + 52}] {_CORRUPTED}",
        f"{_E}{caught + 66}] {_DOWN}",
        f"{_E}{ended}] {_PG}{_ENDED}",
        *_FRAMES,
        _WHAT,
        f"  what():  {_PG}{_ENDED}",
        *_FRAMES,
    ))  # fmt: skip


_OLD_STATUS = (
    "Exception (either an error or timeout) detected by watchdog at work: {sequence}, " + _ENQUEUED
)
_OLD_TIMED_OUT = "Timeout at NCCL work: {sequence}, " + _ENQUEUED

# A rank whose collective timed out: PyTorch 2.4, 2.5, 2.6, 2.7, 2.8, 2.9.
_NCCL_TIMEOUTS = (
    _timeout(607, _OLD_STATUS, 1664, 1709),
    _timeout(616, _OLD_TIMED_OUT, 1834, 1834),
    _timeout(629, _STATUS, 2168, 1895),
    _timeout(632, _STATUS, 2271, 1902),
    _timeout(655, _STATUS, 2299, 2057),
    _timeout(683, _STATUS, 2241, 2092),
    CrashForm(
        (
            _E
            + "1375] "
            + _PG
            + "First PG on this rank that detected no heartbeat of its watchdog.",
            _E
            + "1413] "
            + _PG
            + "Heartbeat monitor timed out! Process will be terminated after dumping debug info. workMetaList_.size()={short}",
            "[rank{rank}]:[F{time:%m%d %H:%M:%S}.{ns} ProcessGroupNCCL.cpp:1557] "
            + _PG
            + "ProcessGroupNCCL's watchdog got stuck for {timeout} seconds without making progress in monitoring enqueued collectives. This typically indicates a NCCL/CUDA API (e.g., CudaEventDestroy) hang blocking the watchdog, and could be triggered by another thread holding the GIL inside a CUDA api (for example, CudaEventDestroy), or other deadlock-prone behaviors. If you suspect the watchdog is not actually stuck and a longer timeout would help, you can either increase the timeout (TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC) to a larger value or disable the heartbeat monitor (TORCH_NCCL_ENABLE_MONITORING=0).",
        )
    ),
)

TIMEOUTS = {
    "nccl": _NCCL_TIMEOUTS,
    "gloo": (
        CrashForm((
            *_STEP,
            "RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting {timeout_ms}ms for recv operation to complete",
        )),
    ),
}  # fmt: skip
