from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forewarn.features.diagnosis.log_lines.line_harm import is_harmless, states_error

HARMLESS = """
[rank0]:[W304 12:00:02.5 socket.cpp:752] [c10d] The client socket has failed to connect
[W socket.cpp:663] [c10d] (gai error: -2 - Name or service not known).
W0304 12:00:05.123000 4242 torch/distributed/run.py:793] Setting OMP_NUM_THREADS failed
I0304 12:00:05.123000 4242 loader.cc:88] shard 7: No such file or directory
2026-03-04 12:00:00.568412: W tensorflow/dso_loader.cc:64] cannot open shared object file
2026-03-04 12:00:00.568412: I external/xla/util.cc:72] Host is used: CUDA_ERROR_NO_DEVICE
node-1:77:99 [0] NCCL INFO NET/Plugin: Failed to find ncclNetPlugin_v9 symbol.
node-1:77:99 [3] NCCL INFO Call to connect returned Connection refused, retrying
node-2:77:99 [1] NCCL INFO connect to 10.0.2.4<379> refused, retrying (3/34) after sleep
node-1:77:99 [0] NCCL TRACE connection reset by peer
2026-03-04 12:00:00,123 - train - INFO - Input/output error count: 0
2026-03-04 12:00:00,123 - __main__ - WARNING - Permission denied for /root/.cache
[2026-03-04 12:00:00,123] [INFO] [comm.py:637:init] address already in use check is off
[2026-03-04 12:00:00,123] [WARNING] [accelerator.py:162] no CUDA-capable device is detected
INFO:root:FileNotFoundError is handled for /data/cache.json
WARNING:datasets.builder:Connection reset by peer, the cached copy is read
INFO 03-04 12:00:00 [loader.py:77] no such file: adapter_config.json
WARNING 03-04 12:00:00 [config.py:12] cudaErrorNotSupported is expected here
(Worker_TP3 pid=77) INFO 03-04 12:00:00 [shm.py:7] unable to open shared memory object
2026-03-04 12:00:00.123 | WARNING  | train.data:read:120 - shard-7: Stale file handle
2026-03-04 12:00:00.123 | DEBUG    | train.data:read:121 - TimeoutError from the first replica
[INFO|trainer.py:1812] 2026-03-04 12:00:00,123 >> checkpoint is truncated, the one before it is read
[WARNING|logging.py:328] 2026-03-04 12:00:00,123 >> size mismatch of the head is expected
{"time": "2026-03-04T12:00:00Z", "level": "info", "msg": "dial tcp: connection refused"}
{"severity": "WARNING", "message": "SlowDown from s3://bucket"}
{"asctime": "x", "message": "disk quota exceeded on /tmp", "levelname": "WARNING"}
time="2026-03-04T12:00:00Z" level=warning msg="no space left on device in the image cache"
26/03/04 12:00:00 WARN DFSClient: BlockMissingException for replica 1
[2026-03-04T12:00:00Z WARN  store::s3] operation timed out on the first endpoint
2026-03-04T12:00:00.123Z  INFO fetch: connection timed out on mirror 2
[INFO] HCCL(77,python):2026-03-04-12:00:00.123.456 [op_base.cc:7] EI0006 is not set
[EVENT] PROFILING(77,python): device error count 0
srun: warning: cannot allocate memory for the plugin cache
slurmstepd: info: task 0 cpu affinity: operation not permitted
[1700000000.123] [node-1:77 :0] ib_device.c:7  UCX  WARN  mlx5_1: Transport retry count is 7
[2026-03-04 12:00:00,123 W 77 77] (raylet) plasma.cc:12: no space left on device
Mar  4 12:00:00 node-1 systemd[1]: notice: unit exited, connection reset by peer
/opt/python3.11/torch/utils.py:77: UserWarning: no CUDA-capable device is detected
train.py:7: DeprecationWarning: an ImportError will be raised in the next version
RuntimeWarning: invalid value encountered in divide, found nan
cat: /etc/motd: No such file or directory
ls: cannot access '/data/extra': No such file or directory
rm: cannot remove 'core.1': No such file or directory
libnccl-tuner.so: cannot open shared object file, using internal tuner instead
libnccl-net.so not found, using default transport
Could not import flash_attn (ImportError: undefined symbol: f), falling back to sdpa
connection to the cache was reset by peer; fallback to local disk
No such file /data/meta.json, ignoring
Permission denied: '/root/.triton', skipping the cache
Gradient overflow. Skipping step, loss scaler 0 reducing loss scale to 16384.0
SXid (PCI:0000:c1:00.0): 11004, Non-fatal, Link 46 ingress invalid ACL
pcieport 0000:40:01.1: AER: Corrected error received: 0000:41:00.0
mce: [Hardware Error]: Corrected error, no action required.
nfs: server filer-1 OK
chown: changing ownership of '/root/.cache': Operation not permitted
3: cat: /etc/motd: No such file or directory
Lustre: connection to data-OST0001 was lost and is restored
I20260304 12:00:00.123 77 reader.cc:1] Connection reset by peer
root - INFO - Broken pipe
rank 3: WARNING: Broken pipe
wandb: Network error (ConnectTimeout), entering retry loop.
mlx5_core 0000:5e:00.0 ens5f0np0: link recovered after 1 s
S3 read of shard 7: Connection reset by peer, retrying in 2 s
ERROR read of /data/shard-7 failed with Errno 5; will retry
[ERROR] 2026-03-04 12:00:00 store: operation timed out, attempt 2/5
E0304 12:00:00.123000 4242 gcs.cc:88] 503 Service Unavailable. Retrying in 4 s
CRITICAL:fetch:Broken pipe, reconnecting
requests.exceptions.ConnectionError: connection refused (attempt 1 of 3)
OutOfMemoryError: CUDA out of memory; retrying with micro batch 2
urllib3: Retrying (Retry(total=4, read=None)) after connection broken by 'NewConnectionError'
""".strip().splitlines()

HARMFUL = """
[rank3]:[E304 12:06:30.5 ProcessGroupNCCL.cpp:684] [Rank 3] CUDA error: an illegal access
[E socket.cpp:957] [c10d] The client socket has timed out after 60s
[F304 12:06:30 ProcessGroupNCCL.cpp:1557] [PG ID 0 Rank 3] watchdog hang
E0304 12:06:30.123000 4242 coordination_service.cc:1170] task 3 has been set to ERROR
F0304 12:06:30.123000 4242 client.h:77] UNAVAILABLE: tasks are unhealthy
2026-03-04 12:06:30.568412: E external/xla/xla/stream_executor/cuda.cc:7] CUDA_ERROR_LAUNCH_FAILED
node-1:77:99 [0] misc/socket.cc:57 NCCL WARN Connection closed by remote peer node-4<401>
node-1:77:99 [0] NCCL WARN NET/IB : mlx5_3:1 async fatal event: port error
node-1:77:99 [0] NCCL WARN Cuda failure 'out of memory'
[2026-03-04 12:06:30] node-1:77:99 [0] RCCL WARN Call to ibv_modify_qp failed
2026-03-04 12:06:30,123 - train - ERROR - Input/output error on /data/shard-7
2026-03-04 12:06:30,123 - __main__ - CRITICAL - no space left on device
[2026-03-04 12:06:30,123] [ERROR] [launch.py:325:sigkill_handler] exits with return code = -9
ERROR:root:falling back is impossible without the file /data/index.json
ERROR 03-04 12:06:30 [multiproc_executor.py:140] Worker proc died unexpectedly
(EngineCore_0 pid=77) ERROR 03-04 12:06:30 [core.py:7] device-side assert triggered
2026-03-04 12:06:30.123 | ERROR    | train.data:read:120 - shard-7: Stale file handle
2026-03-04 12:06:30.123 | CRITICAL | train.loop:run:77 - loss is nan
[ERROR|trainer.py:1812] 2026-03-04 12:06:30,123 >> checkpoint is truncated
{"time": "2026-03-04T12:06:30Z", "level": "error", "msg": "dial tcp: connection refused"}
{"severity": "CRITICAL", "message": "ignoring nothing: disk quota exceeded"}
time="2026-03-04T12:06:30Z" level=fatal msg="no space left on device"
26/03/04 12:06:30 ERROR DFSClient: BlockMissingException, skipping is off
[2026-03-04T12:06:30Z ERROR store::s3] operation timed out
[ERROR] HCCL(77,python):2026-03-04-12:06:30.123.456 [transport.cc:7] EI0006 socket timeout
srun: error: node-1: task 3: Exited with exit code 1
slurmstepd: error: Detected 1 oom_kill event in StepId=7.0.
[1700000000.123] [node-1:77 :0] ib_mlx5_log.c:171  UCX  ERROR Transport retry count exceeded
[2026-03-04 12:06:30,123 E 77 77] (raylet) manager.cc:3007: workers killed due to memory pressure
[drm:amdgpu_job_timedout [amdgpu]] *ERROR* ring sdma0 timeout
Error: cannot read /data/index.json
FATAL: disk failure on /scratch
RuntimeError: CUDA error: uncorrectable ECC error encountered
[rank5]: ValueError: shard 7 is broken, ignoring it is not allowed
torch.distributed.DistBackendError: NCCL error: remote process exited or there was a network error
OSError: [Errno 5] Input/output error: '/data/shard-7'
3: json.decoder.JSONDecodeError: skipping is not possible at line 1
Segmentation fault (core dumped)
terminate called after throwing an instance of 'std::bad_alloc'
Killed
NVRM: Xid (PCI:0000:3b:00): 79, pid=77, name=python, GPU has fallen off the bus.
[  123.456789] INFO: task pt_main_thread:4242 blocked for more than 120 seconds.
rcu: INFO: rcu_sched detected stalls on CPUs/tasks
mce: [Hardware Error]: CPU 12: Machine Check Exception: 5 Bank 7
nvme 0000:01:00.0: PCIe Bus Error: severity=Uncorrected (Non-Fatal), type=Transaction Layer
EXT4-fs error (device nvme0n1p2): journal has aborted
nfs: server filer-1 not responding, still trying
Out of memory: Killed process 4242 (python3) total-vm:1kB
Memory access fault by GPU node-4 on address 0x7f. Reason: Unknown.
Warning  FailedMount  kubelet  MountVolume.SetUp failed for volume "data"
Warning  Evicted  kubelet  The node was low on resource: memory.
WARNING:torch.distributed.elastic.agent.server.api:Received 1 death signal, shutting down workers
WARNING read of /data/shard-7 failed after 5 attempts
WARNING: store is gone, giving up
[WARNING] checkpoint could not be written, aborting
INFO fetch of shard 7: attempt 5/5 failed
ERROR fetch of shard 7 failed, attempt 3 of 3
ERROR fetch of shard 7: retries exhausted
[ERROR] connection lost, not retrying
urllib3.exceptions.MaxRetryError: Max retries exceeded with url: /api
cannot fall back to TCP: no route to host
the fallback to TCP failed: no route to host
the link was not recovered
mount: /data: Stale file handle
MemoryError
python: can't open file '/job/train.py': [Errno 2] No such file or directory
E20260304 12:06:30.123 77 reader.cc:1] Connection reset by peer
rank 3: ERROR: Broken pipe
chown: changing ownership of '/job/out': No space left on device
cp: cannot stat '/data/index.json': No such file or directory
AssertionError: Rank 5: found NaN in local forward loss calculation
Bus error (core dumped)
""".strip().splitlines()
LOW = ["INFO", "DEBUG", "TRACE", "WARN", "WARNING", "NOTICE"]
HIGH = ["ERROR", "CRITICAL", "FATAL"]
LAYOUTS = [
    *("{} disk", "{}: disk", "[{}] disk", "[{}] [loader.py:7] disk", "{}:root: disk"),
    *("2026-03-04 12:00:00,123 - train - {} - disk", "2026-03-04 12:00:00.1 | {} | a:b:7 - disk"),
    *("(Worker pid=7) {} disk", "[2026-03-04T12:00:00Z {} a::b] disk", "node-1:7:8 {} disk"),
    *('{{"level": "{}", "msg": "disk', "time=1 level={} msg=disk", "[{}|a.py:7] 12:00:00 >> disk"),
]


@pytest.mark.parametrize("line", HARMLESS)
def test_lines_that_did_no_harm(line: str) -> None:
    assert is_harmless(line)


@pytest.mark.parametrize("line", HARMFUL)
def test_lines_that_may_have_done_harm(line: str) -> None:
    assert not is_harmless(line)


MESSAGES = st.text("abcdefgh ./'", max_size=30).map(lambda text: f"{text} is full")


@given(st.sampled_from(LAYOUTS), st.sampled_from(LOW + HIGH), MESSAGES)
def test_level_decides(layout: str, level: str, message: str) -> None:
    assert is_harmless(layout.format(level) + message) is (level in LOW)


@given(st.sampled_from(LAYOUTS), st.sampled_from(LOW + HIGH), st.integers(1, 9), st.integers(1, 9))
def test_last_attempt_is_harmful(layout: str, level: str, attempt: int, most: int) -> None:
    line = f"{layout.format(level)} attempt {attempt}/{most} failed"
    assert is_harmless(line) is (attempt < most)


@given(MESSAGES, st.sampled_from(LOW))
def test_level_inside_a_message_says_nothing(message: str, level: str) -> None:
    assert not is_harmless(f"disk {message} {level}")


@given(st.text(max_size=400))
def test_any_text_has_an_answer(line: str) -> None:
    assert is_harmless(line) in (True, False)


ERRORS = ["failed", "fault", "failure", "timed out", "aborted", "exception", "error"]
WORDED = ["the transfer {} on lane 4", "71%|###  | 71/99 access {} by device 3", "(y.cc:7) {} here"]
UNHARMED = [
    *(
        "no {}s",
        "finished without any {}",
        "lane 4, {}: 0",
        "{}=7",
        "absolute {} is small",
        "train {} rose",
    ),
    *("{} rate", "INFO it {} here", "the file /out/{}.txt", "on_{}: stop", "{} 0.25"),
    "{} to find a name, you can set it with NAME",
]


@given(st.sampled_from(WORDED), st.sampled_from(ERRORS))
def test_words_state_an_error(form: str, word: str) -> None:
    assert states_error(form.format(word))


@given(st.sampled_from(UNHARMED), st.sampled_from(ERRORS))
def test_measures_and_settings_state_none(form: str, word: str) -> None:
    assert not states_error(form.format(word))
