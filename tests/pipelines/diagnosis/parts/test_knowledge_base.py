from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from forewarn.features.diagnosis.log_lines.log_matcher import LogMatcher
from forewarn.features.diagnosis.log_lines.log_pattern import Level, compile_pattern
from forewarn.features.diagnosis.log_lines.named_peer import named_peers
from forewarn.features.errors import InputError
from forewarn.pipelines.diagnosis.parts.knowledge_base import load_patterns, pattern_tables
from forewarn.pipelines.incidents.replay.policy_file import load_policy
from forewarn.response.state.finding import Severity

TABLES = pattern_tables()
KEYS = ("pattern", "role", "scope", "level", "says", "next", "examples", "counterexamples")
QUIET = """
[2025-03-01 04:00:00,123] [INFO] [train.py:120] iteration 503/ 10000 | loss: 0.5030 | grad: 1.2
 [2025-03-01 04:00:00.123456] iteration      100/  500000 | samples: 25600 | loss scale: 1.0
node-1:77:99 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM/read
node-1:77:99 [0] NCCL INFO NCCL_IB_TIMEOUT set by environment to 22.
node-1:77:99 [0] NCCL INFO Connected all rings
W0301 04:00:00.123000 77 torch/distributed/run.py:793] Setting OMP_NUM_THREADS environment variable
[I301 04:00:00.1 ProcessGroupNCCL.cpp:905] [PG ID 0 Rank 3] initialization options
saving checkpoint at iteration 1000 to /ckpt in torch format
successfully saved checkpoint from iteration 1000 to /ckpt
evaluation: 12 errors of 5000 samples, accuracy 0.93
usb 1-2: new high-speed USB device number 4 using xhci_hcd
mlx5_core 0000:5e:00.0 ens5f0np0: Link up
EXT4-fs (nvme0n1p2): mounted filesystem with ordered data mode
""".strip().splitlines()


@pytest.fixture(scope="module")
def matcher() -> LogMatcher:
    return load_patterns()


def test_only_faults_of_machines_need_repair() -> None:
    repaired = [pattern for pattern in load_patterns().patterns if pattern.needs_repair]
    assert len(repaired) > 10
    assert all(pattern.role == "root" for pattern in repaired)
    assert {pattern.scope for pattern in repaired} == {"gpu", "node", "fabric", "storage"}


def test_patterns_are_complete() -> None:
    assert len(TABLES) > 60
    assert [name for name, table in TABLES.items() if any(not table.get(key) for key in KEYS)] == []


@pytest.mark.parametrize("name", TABLES)
def test_examples_match_and_counterexamples_do_not(name: str, matcher: LogMatcher) -> None:
    table = TABLES[name]
    for line in table["examples"]:
        first = matcher.first(line.encode())
        assert first is not None
        assert first.id == name, line
    regular = compile_pattern(table["pattern"])
    assert [x for x in table["counterexamples"] if regular.search(x.encode())] == []


@pytest.mark.parametrize("line", QUIET)
def test_healthy_lines_do_not_match(line: str, matcher: LogMatcher) -> None:
    pattern = matcher.first(line.encode())
    assert pattern is None or pattern.phase is not None or pattern.cancels, pattern


def test_levels_equal_policy_severities() -> None:
    assert [str(severity) for severity in Severity] == list(Level.__args__)  # type: ignore[attr-defined]


def test_xid_levels_agree_with_policy(matcher: LogMatcher) -> None:
    """Applies to codes with a pattern; the policy also lists codes without one."""
    xids, wrong = load_policy().xids, {}
    for code, rule in xids.items():
        pattern = matcher.first(f"NVRM: Xid (PCI:0000:3b:00): {code}, pid=7, text".encode())
        if pattern is not None and pattern.level != rule.rule.severity:
            wrong[code] = (pattern.id, pattern.level)
        if rule.rule.severity != "notice":
            assert pattern is not None, code
    assert wrong == {}


def test_old_and_new_time_out_messages(matcher: LogMatcher) -> None:
    for line in (
        "[E ProcessGroupNCCL.cpp:828] [Rank 1] Watchdog caught collective operation timeout: "
        "WorkNCCL(SeqNum=15173, OpType=ALLREDUCE, Timeout(ms)=1800000) ran for 1802710 "
        "milliseconds before timing out.",
        "[PG ID 0 PG GUID 0(default_pg) Rank 1] Exception (either an error or timeout) detected by "
        "watchdog at work: 808, last enqueued NCCL work: 811, last completed NCCL work: 807.",
    ):
        pattern = matcher.first(line.encode())
        assert pattern is not None
        assert pattern.role == "cascade"


ACCUSING_ROOTS = {"slurm-node-named", "pbs-node-lost", "kubernetes-node"}
PEERS = [
    ("NET/IB : Got completion from peer 10.0.2.4<401> with status=12 opcode=0", "10.0.2.4"),
    ("NET/IB: Got completion from peer n4<401> with status=IBV_WC_RETRY_EXC_ERR(12)", "n4"),
    ("NET/IB : Got completion from peer 10.0.2.4<401> with error 5, opcode 0", "10.0.2.4"),
    ("NET/IB : Got completion from peer 10.0.2.4<401> with status=4 opcode=0", None),
    ("NCCL WARN Net : Connect to 10.0.2.4<379> failed : No route to host", "10.0.2.4"),
    ("NCCL WARN socketPollConnect: connect to n4<379> returned Connection refused", "n4"),
    ("NCCL WARN socketProgressOpt: Call to recv from n4<379> failed : Broken pipe", "n4"),
    ("NCCL WARN socketProgress: Connection closed by remote peer n4-ib<401>", "n4-ib"),
    ("NCCL WARN Call to ibv_modify_qp failed with 110 Connection timed out, on dev mlx5_0:1, "
     "local GID ::ffff:10.0.2.1, remote GID ::ffff:10.0.2.4", "10.0.2.4"),
    ("[c10d] The client socket has failed to connect to [n0]:29500 (errno: 111)", "n0"),
    ("[c10d] The client socket has timed out after 60s while trying to connect to (n0, 1).", "n0"),
    ("[c10d] The client socket has failed to connect to [localhost]:29500 (errno: 99)", None),
    ("recvValue failed on SocketImpl(fd=3, addr=[n2]:41, remote=[n0]:29500): Failed to recv", "n0"),
    ("[c10d] The server socket has failed to bind to [::]:29500 (errno: 98)", None),
    ("gloo/transport/tcp/pair.cc:5] Connection closed by peer [10.0.2.4]:4242", "10.0.2.4"),
    ("Gloo connectFullMesh failed with a local=[10.0.2.1]:1, remote=[10.0.2.4]:43", "10.0.2.4"),
    ("[Rank 0]: Ranks 3, 5 failed to pass monitoredBarrier in 30000 ms", "3 5"),
    ("[Rank 4] successfully reached monitoredBarrier, but received errors from rank 0.", None),
    ("   - [3] never joined any collectives", "3"),
    ("Received a dump signal due to a collective timeout from  rank 7 and we will", None),
    ("7!: [DistributedAdam_Allreduce/cond_3/HorovodAllreduce_grads_3_0, b ...]", "7"),
    ("global_step [missing ranks: 1, 3]", "1 3"),
    ("3: [2025-03-01 04:00:00,123] [INFO] iteration 503 allreduce", None),
    ("Task /job:jax_worker/replica:0/task:3 heartbeat timeout. This indicates", "task 3"),
    ("The first task at the barrier: /job:w/replica:0/task:13. Some timed out task names:", None),
    ("[rank2]: /job:jax_worker/replica:0/task:6", "task 6"),
    ("EI0002: The Notify register has not received the record from remote rank: [7]. base", "7"),
    ("[ERROR] HCCL(77): Transport Init failed, dest_rank[11], remote_rank[11]", "11"),
    ("HCCL(7) | 10.0.2.8(1) | 166 | 10.0.2.9(0) | 0 | server | time out | DISABLE", "1"),
    ("fault_info[Failed to connect agent[1,3,5,]", "1 3 5"),
    ("NET/IB : Got completion from peer [n4]<401> with error 12, opcode 0", "n4"),
    ("ORTE has lost communication with its daemon located on node: hostname: n3 This is", "n3"),
    ("ORTE has lost communication with a remote daemon. HNP daemon : [[7,0],0] on node n0", None),
    ('error: commlib error: got read error (closing "n3.lan/shepherd_ijs/1")', "n3.lan"),
    ("  Peer host:  n3", "n3"),
    ("UCX  ERROR connection to remote peer n4 failed: Endpoint timeout", "n4"),
    ("libfabric:7:1:efa:cq:x():7<warn> err: 5 My host id: i-1 Peer host id: i-2 (14)", "i-2"),
    ("Detected mismatch between collectives on ranks. Rank 1 is running collective: "
     "CollectiveFingerPrint(OpType=BARRIER), but Rank 7 is running collective: C(OpType=R)", "1 7"),
    ("DDP expects same model across all ranks, but Rank 5 has 1 params, while rank 0 has 2", "5 0"),
    ("srun: error: Node failure on n3", "n3"),
    ("srun: error: Node failure on n[3-4]", "n3 n4"),
    ("Node n3 status is now: NodeNotReady", "n3"),
    ("=>> PBS: job killed: node 2 (n3) requested job terminate, 'EOF'", "n3"),
    ("slurmstepd: error: *** JOB 77 ON n1 CANCELLED AT 2025-03-01T04:00:00 ***", None),
]  # fmt: skip


@pytest.mark.parametrize(("line", "expected"), PEERS)
def test_lines_name_the_peer(line: str, expected: str | None, matcher: LogMatcher) -> None:
    """A number is a rank; the speaker is accused only by the lines of schedulers."""
    pattern = matcher.first(line.encode())
    assert pattern is not None or expected is None
    names = [
        f"task {peer.task}" if peer.task is not None else peer.host or peer.address or peer.rank
        for peer in (named_peers(pattern, line) if pattern is not None else ())
    ]
    assert " ".join(map(str, names)) == (expected or "")


def test_patterns_with_a_peer_are_cascades(matcher: LogMatcher) -> None:
    accusing = [
        pattern
        for pattern in matcher.patterns
        if re.search(r"\?P<(peer|present)_", pattern.expression) and pattern.id != "ranks-disagree"
    ]
    assert len(accusing) > 10
    roots = {pattern.id for pattern in accusing if pattern.role != "cascade"}
    assert roots == ACCUSING_ROOTS
    assert {pattern.id for pattern in matcher.patterns if pattern.sees_all} > ACCUSING_ROOTS
    assert all(pattern in accusing for pattern in matcher.patterns if pattern.sees_all)


@pytest.mark.parametrize(
    ("line", "role"),
    [
        ("slurmstepd: error: *** STEP 7.0 ON n1 CANCELLED AT 2025-03-01T04 DUE TO PREEMPTION ***",
         "ended"),
        ("slurmstepd: error: *** STEP 7.0 ON n1 CANCELLED AT 2025-03-01T04:00:00 ***", "cascade"),
        ("slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2025-03-01T04:00:00 DUE TO NODE FAILURE",
         "root"),
        ("agent.server.api:Received Signals.SIGHUP death signal, shutting down workers", "ended"),
        ("agent.server.api:Received Signals.SIGINT death signal, shutting down workers", "ended"),
        ("api:Received Signals.SIGTERM death signal, shutting down workers", "cascade"),
        ("TERM_OWNER: job killed by owner.", "ended"),
        ("Warning  Evicted  kubelet  The node was low on resource: memory.", "ended"),
        ("instance interruption notice received", "ended"),
        ("KeyboardInterrupt", "ended"),
        ("Killed", "root"),
    ],
)  # fmt: skip
def test_requested_ends_are_no_faults(line: str, role: str, matcher: LogMatcher) -> None:
    pattern = matcher.first(line.encode())
    assert pattern is not None
    assert pattern.role == role


def test_real_kernel_logs(matcher: LogMatcher, shared_data: Path) -> None:
    """Expected by reading them: GPU memory and GSP, a program error, a segfault in NCCL."""
    ids = {
        path.name: {line.pattern.id for line in matcher.lines(path.read_bytes())}
        for path in (shared_data / "kernel_logs").iterdir()
    }
    assert ids["accelerator_nvidia_nccl__dmesg.decode.iso.log"] == {"segfault"}
    assert ids["accelerator_nvidia_xid__dmesg-with-xid-119.log"] == {"xid-firmware"}
    assert "xid-program" in ids["memory__dmesg.decode.iso.log"]
    assert ids["pkg_kmsg__kmsg.1.log"] == {"port-active"}  # a link came up


# --- overlays -------------------------------------------------------------------------------------

OWN = """
[patterns.our-loader]
pattern = 'loader: shard \\d+ is broken'
role = "root"
scope = "storage"
level = "error"
says = "a shard is broken"
next = "copy it again"
examples = ["ValueError: loader: shard 17 is broken"]
counterexamples = ["loader: shard 17 is read"]
"""


def overlay(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "site.toml"
    path.write_text(text)
    return path


def test_site_patterns_take_precedence(tmp_path: Path) -> None:
    line = b"ValueError: loader: shard 17 is broken"
    assert load_patterns().first(line).id == "python-exception"  # type: ignore[union-attr]
    matcher = load_patterns([overlay(tmp_path, OWN)])
    assert matcher.first(line).id == "our-loader"  # type: ignore[union-attr]


def test_site_overrides_one_key(tmp_path: Path) -> None:
    matcher = load_patterns([overlay(tmp_path, '[patterns.dns]\nlevel = "critical"\n')])
    pattern = matcher.first(TABLES["dns"]["examples"][0].encode())
    assert pattern is not None
    assert (pattern.level, pattern.says) == ("critical", TABLES["dns"]["says"])


def test_site_disables_pattern(tmp_path: Path) -> None:
    matcher = load_patterns([overlay(tmp_path, "[patterns.thermal]\nenabled = false\n")])
    assert "thermal" not in {pattern.id for pattern in matcher.patterns}


def without(key: str) -> str:
    return re.sub(rf"(?m)^{key} = .*\n", "", OWN)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (OWN.replace("\\d+", "(?<=a)b"), "patterns.our-loader.pattern`: is not valid in RE2"),
        (OWN.replace("\\d+ is broken", "(\\d)\\1"), "invalid escape sequence"),
        (OWN.replace('"root"', '"culprit"'), "patterns.our-loader.role`: found 'culprit'"),
        (OWN.replace("17 is broken", "is broken"), "does not match 'ValueError: loader: shard is"),
        (OWN.replace("is read", "is broken"), "the pattern matches 'loader: shard 17 is broken'"),
        (without("next"), "`patterns.our-loader` has no `next`, expected one"),
        (OWN + "colour = 1\n", "unknown key `patterns.our-loader.colour`"),
        ("[pattern.x]\n", "unknown key `pattern`"),
        ("[patterns.dns]\npattern = 'x'\n", "`patterns.dns.examples`: the pattern does not match"),
    ],
)
def test_invalid_overlays_are_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError) as refused:
        load_patterns([overlay(tmp_path, text)])
    assert message in str(refused.value)
    assert str(refused.value).startswith(str(tmp_path))
    assert "\n" not in str(refused.value)


def test_site_pattern_cannot_hang_search(tmp_path: Path) -> None:
    text: Any = OWN.replace("loader: shard \\d+ is broken", "(a+)+$")
    text = text.replace("ValueError: loader: shard 17 is broken", "aa").replace("is read", "b")
    matcher = load_patterns([overlay(tmp_path, text)])
    assert list(matcher.lines(b"a" * 100_000 + b"!\n")) == []
