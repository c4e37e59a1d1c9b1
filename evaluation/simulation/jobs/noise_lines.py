"""Harmless lines of healthy jobs: warnings, retries that succeed, links that recover.

Each form is what a program or the kernel prints when nothing is wrong, or when a trouble is over a
moment later. Fields are those of `LineWriter`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["NCCL_SETUP", "NOISE", "NoiseForm"]


@dataclass(frozen=True, slots=True)
class NoiseForm:
    """A harmless event.

    Attributes
    ----------
    writer : str
        `all` ranks, one `rank`, or the `kernel` of one machine.
    first : str
        The line.
    then : str
        A line some seconds later that says how it went on; empty if nothing does.
    seconds : tuple of (float, float)
        Limits of the time between the two.
    at_start : bool
        Printed at the start of the job rather than at any time.
    """

    writer: Literal["all", "rank", "kernel"]
    first: str
    then: str = ""
    seconds: tuple[float, float] = (0.0, 0.0)
    at_start: bool = False


_GLOG = "[W{time:%m%d %H:%M:%S}.{ns} "
_NCCL = "{host}:{pid}:{thread} [{local}] NCCL "


def _start(writer: Literal["all", "rank", "kernel"], text: str) -> NoiseForm:
    return NoiseForm(writer, text, at_start=True)


NOISE = (
    _start(
        "all",
        "cat: /sys/class/infiniband/mlx5_bond_0/ports/1/gid_attrs/ndevs/{n}: No such file or directory",
    ),
    _start("all", "cat: /etc/cluster/topology.txt: No such file or directory"),
    _start(
        "all",
        _NCCL
        + "INFO NET/Plugin : Plugin load (libnccl-net.so) returned 2 : libnccl-net.so: cannot open shared object file: No such file or directory",
    ),
    _start(
        "all",
        _NCCL + "INFO NET/Plugin: Could not find: libnccl-net.so. Using internal network plugin.",
    ),
    _start(
        "all",
        _NCCL
        + "INFO TUNER/Plugin: Failed to find ncclTunerPlugin_v3 symbol, using internal tuner instead.",
    ),
    _start("all", _NCCL + "INFO Failed to open libibverbs.so[.1]"),
    _start(
        "rank",
        _NCCL
        + 'WARN Missing "iommu=pt" from kernel command line which can lead to system instablity or hang!',
    ),
    _start(
        "rank",
        "[{host}:{pid}] [warn] Epoll MOD(1) on fd 27 failed. Old events were 6; read change was 0 (none); write change was 2 (del); close change was 0 (none): Bad file descriptor",
    ),
    _start(
        "all",
        _GLOG
        + "socket.cpp:{n}] [c10d] The IPv6 network addresses of ({head}, 29500) cannot be retrieved (gai error: -2 - Name or service not known).",
    ),
    _start(
        "rank",
        _GLOG
        + "socket.cpp:{n}] [c10d] The client socket has failed to connect to [{head}]:29500 (errno: 111 - Connection refused).",
    ),
    _start(
        "all",
        "[rank{rank}]:"
        + _GLOG
        + "ProcessGroupNCCL.cpp:4115] [PG ID 0 PG GUID 0 Rank {rank}]  using GPU {local} to perform barrier as devices used by this process are currently unknown. This can potentially cause a hang if this rank to GPU mapping is incorrect. Specify device_ids in barrier() to force use of a particular device, or call init_process_group() with a device_id.",
    ),
    _start(
        "all",
        _GLOG
        + "CUDAAllocatorConfig.h:28] Warning: expandable_segments not supported on this platform (function operator())",
    ),
    _start(
        "all",
        "/usr/local/lib/python3.12/dist-packages/torch/utils/checkpoint.py:85: UserWarning: torch.utils.checkpoint: the use_reentrant parameter should be passed explicitly. In version 2.5 we will raise an exception if use_reentrant is not passed.",
    ),
    _start(
        "all",
        "/workspace/train.py:{n}: FutureWarning: `torch.cuda.amp.GradScaler(args...)` is deprecated. Please use `torch.amp.GradScaler('cuda', args...)` instead.",
    ),
    _start(
        "all",
        "/usr/lib/python3/dist-packages/requests/__init__.py:87: DeprecationWarning: `errors` of requests.compat is deprecated and will raise an error in a later version",
    ),
    _start(
        "all",
        "fused_weight_gradient_mlp_cuda module not found. gradient accumulation fusion with weight gradient computation disabled.",
    ),
    _start(
        "rank",
        "UserWarning: Flash Attention 3 is not available on this device, falling back to Flash Attention 2",
    ),
    _start(
        "rank",
        " [WARNING]  async_io requires the dev libaio .so object and headers but these were not found.",
    ),
    _start(
        "rank",
        "Unable to import Transformer Engine userbuffers (No module named 'transformer_engine_extensions'), falling back to NCCL",
    ),
    _start(
        "rank",
        "Failed to detect the name of this notebook, you can set it manually with the WANDB_NOTEBOOK_NAME environment variable to enable code saving.",
    ),
    _start(
        "rank",
        "/usr/local/lib/python3.12/dist-packages/torch/utils/data/dataloader.py:617: UserWarning: This DataLoader will create 16 worker processes in total. Our suggested max number of worker in current system is 8, which is smaller than what this DataLoader is going to create. Please be aware that excessive worker creation might get DataLoader running slow or even freeze, lower the worker number to avoid potential slowness/freeze if necessary.",
    ),
    _start(
        "kernel",
        "NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  570.124.06  Release Build",
    ),
    NoiseForm(
        "rank",
        "huggingface/tokenizers: The current process just got forked, after parallelism has already been used. Disabling parallelism to avoid deadlocks...",
    ),
    NoiseForm(
        "rank",
        "Token indices sequence length is longer than the specified maximum sequence length for this model (5{n} > 4096). Running this sequence through the model will result in indexing errors",
    ),
    NoiseForm(
        "rank",
        "{time:%Y-%m-%d %H:%M:%S},{ms} WARNING urllib3.connectionpool Retrying (Retry(total=4, connect=None, read=None, redirect=None, status=None)) after connection broken by 'ReadTimeoutError(\"HTTPSConnectionPool(host='s3.example.com', port=443): Read timed out. (read timeout=60)\")': /corpus/shard-{n:05d}.tar",
    ),
    NoiseForm(
        "rank",
        "{time:%Y-%m-%d %H:%M:%S},{ms} WARNING reading /mnt/corpus/shard-{n:05d}.bin failed: [Errno 5] Input/output error, retrying (1/5)",
        "{time:%Y-%m-%d %H:%M:%S},{ms} INFO read /mnt/corpus/shard-{n:05d}.bin after 1 retry",
        (0.5, 20.0),
    ),
    NoiseForm(
        "rank",
        "{time:%Y-%m-%d %H:%M:%S},{ms} WARNING checkpoint shard {n}: OSError: [Errno 116] Stale file handle, trying again in 5 s",
        "{time:%Y-%m-%d %H:%M:%S},{ms} INFO checkpoint shard {n}: written at attempt 2",
        (5.0, 9.0),
    ),
    NoiseForm(
        "rank",
        "{time:%Y-%m-%d %H:%M:%S},{ms} WARNING fsspec Connection reset by peer, retry 1 of 6 in 1.4 s: gs://corpus/part-{n:05d}.parquet",
    ),
    NoiseForm(
        "rank",
        "{time:%Y-%m-%d %H:%M:%S},{ms} WARNING skipping sample {n}: UnidentifiedImageError: cannot identify image file <_io.BytesIO object at 0x7f0c4{n:05d}>",
    ),
    NoiseForm(
        "rank",
        "wandb: Network error (ConnectionError), entering retry loop.",
        "wandb: Network error resolved after 0:00:0{short}.1{short}52, resuming normal operation.",
        (2.0, 9.0),
    ),
    NoiseForm(
        "rank",
        "wandb: ERROR Error while calling W&B API: context deadline exceeded (<Response [504]>)",
    ),
    NoiseForm(
        "rank",
        "Exception ignored in: <function _MultiProcessingDataLoaderIter.__del__ at 0x7f3a2{n:05d}>",
    ),
    NoiseForm(
        "rank",
        "[{time:%Y-%m-%d %H:%M:%S},{ms}] [WARNING] [stage3.py:2069:step] {short} pytorch allocator cache flushes since last step. this happens when there is high memory pressure and is detrimental to performance. if this is happening frequently consider adjusting settings to reduce memory consumption.",
    ),
    NoiseForm(
        "rank",
        "[{time:%Y-%m-%d %H:%M:%S},{ms}] [INFO] [loss_scaler.py:190:update_scale] [deepspeed] OVERFLOW! Rank {rank} Skipping step. Attempted loss scale: 65536, but hysteresis is 2. Reducing hysteresis to 1",
    ),
    NoiseForm(
        "all",
        "/usr/local/lib/python3.12/dist-packages/torch/distributed/c10d_logger.py:83: FutureWarning: `torch.distributed._all_gather_base` is a private function and will be deprecated. Errors will be raised in a later version.",
    ),
    NoiseForm(
        "rank",
        _NCCL + "WARN NET/IB : mlx5_{local}:1 Got async event : port error",
        _NCCL + "INFO NET/IB : mlx5_{local}:1 Got async event : port active",
        (0.5, 4.0),
    ),
    NoiseForm(
        "kernel",
        "nfs: server 10.9.0.{short} not responding, still trying",
        "nfs: server 10.9.0.{short} OK",
        (3.0, 80.0),
    ),
    NoiseForm(
        "kernel",
        "mlx5_core 0000:{short}b:00.0 eth{short}: Link down",
        "mlx5_core 0000:{short}b:00.0 eth{short}: Link up",
        (0.8, 4.0),
    ),
    NoiseForm(
        "kernel",
        "pcieport 0000:{short}a:00.0: AER: Corrected error received: 0000:{short}b:00.0",
        "nvme 0000:{short}b:00.0: PCIe Bus Error: severity=Corrected, type=Physical Layer, (Receiver ID)",
        (0.001, 0.002),
    ),
    NoiseForm(
        "kernel",
        "EDAC MC{short}: 1 CE memory read error on CPU_SrcID#0_MC#{short}_Chan#1_DIMM#0 (channel:1 slot:0 page:0x{n:07x} offset:0x40 grain:32 syndrome:0x0)",
    ),
    NoiseForm(
        "kernel",
        "TCP: request_sock_TCP: Possible SYN flooding on port 29500. Sending cookies.  Check SNMP counters.",
    ),
    NoiseForm(
        "kernel",
        "perf: interrupt took too long (2{n} > 2500), lowering kernel.perf_event_max_sample_rate to 50000",
    ),
    NoiseForm(
        "kernel",
        "Memory cgroup out of memory: Killed process 7{n} (node_exporter) total-vm:1840{n}kB, anon-rss:51{n}kB, file-rss:0kB, shmem-rss:0kB, UID:65534 pgtables:1{n}kB oom_score_adj:992",
    ),
)

# What each rank prints with NCCL_DEBUG=INFO when its communicator is made.
NCCL_SETUP = (
    "{host}:{pid}:{thread} [{local}] NCCL INFO Bootstrap: Using eth0:{address}<0>",
    "{host}:{pid}:{thread} [{local}] NCCL INFO cudaDriverVersion 12080",
    "{host}:{pid}:{thread} [{local}] NCCL INFO ncclCommInitRankConfig comm 0x55d{n}3a0c0 rank {rank} nranks {ranks} cudaDev {local} nvmlDev {local} busId {short}b000 commId 0x9f1c{n}d2 - Init START",
    "{host}:{pid}:{thread} [{local}] NCCL INFO comm 0x55d{n}3a0c0 rank {rank} nRanks {ranks} nNodes {nodes} localRanks {locals} localRank {local} MNNVL 0",
)
