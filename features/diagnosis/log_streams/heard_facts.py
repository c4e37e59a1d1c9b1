"""Ranks, machines and addresses that the lines of a log state."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from forewarn.features.diagnosis.log_lines.line_selection import JoinedLines
from forewarn.features.diagnosis.log_lines.log_matcher import find_matching_lines
from forewarn.features.diagnosis.log_lines.log_pattern import compile_pattern

__all__ = ["Heard", "hear", "may_state_fact", "writing_host"]

_HEAD_BYTES = 2**16
# Lines without these words state nothing; this search is several times as fast as those below.
_FACTS = compile_pattern(r"(?i)rank|NCCL|world|srun: error:|host  *: |peer|nodes|num_machines")
# A process group other than 0 counts its members from 0, as NCCL does.
# NCCL names its communicator's rank: it is the job's rank only if the communicator has all ranks.
_NCCL_RANK = re.compile(rb"\brank (\d{1,7}) n[rR]anks (\d{1,7})")
# A time may precede the host, and the place in NCCL's source the word NCCL.
NCCL_PROCESS = (
    rb"(?m)^(?:\[[\d :.-]{10,30}\] |\d{4}-\d\d-\d\dT[\d:.]{8,20}Z?:? )?\W{0,2}"
    rb"([A-Za-z][\w.-]*:\d+):\d+ \[\d*\] (?:\S+ )?NCCL "
)
_NCCL_PROCESS = re.compile(NCCL_PROCESS)
_NCCL_NET = re.compile(NCCL_PROCESS + rb"INFO (?:Bootstrap|NET)[^\n]*")
_INTERFACE = re.compile(rb"[ \]]\w+:((?:\d{1,3}\.){3}\d{1,3}|[0-9a-f]*:[0-9a-f:]+)(?:%\w+)?<")
_SPEAKERS = (
    (b"ank ", re.compile(rb"\[(?:PG (?:ID )?0 [^\n\]]{0,80})?R[Aa][Nn][Kk][ :](\d{1,7})\]")),
    (b"[rank", re.compile(rb"\[rank(\d{1,7})\]:")),
    (b"RANK=", re.compile(rb"(?<![A-Z_])RANK=(\d{1,7})\b")),
    (b"aborted on rank", re.compile(rb"communicator was aborted on rank (\d{1,7})\b")),
    (b"global rank", re.compile(rb"global rank[ :=]+(\d{1,7})\b")),
)
_PEER = re.compile(rb"\b(?:[Pp]eer|from|to) \[?([A-Za-z\d][\w.-]*)\]?<\d+>")
_MEMBER = re.compile(rb"GLOBAL_RANK: (\d{1,7}), MEMBER: \d+/(\d{1,7})")
_MAPPING = re.compile(rb"global_rank_mapping=[^\n{]*\{([^\n}]*)\}")
_MAPPED = re.compile(rb"'([\w.-]+)': \[([\d, ]*)\]")
_AGENT = re.compile(
    rb'"global_rank": (\d{1,7}),[^\n]{0,200}?"hostname": "([\w.-]+)"[^\n]{0,300}?'
    rb"local_rank\W{1,6}(\d{1,4})"
)
_RANK_OF = re.compile(rb"\b[Rr]ank[ :=]+(\d{1,7}) ?(?:of|/) ?(\d{1,7})\b")
_WORLD = re.compile(rb"(?i)(?:\b|dist_)world[_ ]size['\"]?[ :=]+(\d{1,7})\b")
_NODES = re.compile(
    rb"(?i)(?:nnodes|num_nodes|num_machines|max_nodes)['\"]?[ :=]{1,9}(?:1:)?(\d{1,5})\b"
)
_LATER_NODE = re.compile(rb"(?i)(?:node|machine|group)_rank['\"]?[ :=]{1,9}(\d{1,5})\b")
_FAILURE = re.compile(rb"host +: +([\w.-]+)\n[^\n]*?rank +: +(\d{1,7}) \(local_rank: (\d{1,4})\)")
# The device is the local rank only where each process has one, so that it gives no first rank.
_NCCL_TESTS = re.compile(
    rb"(?m)^#\s+Rank\s+(\d{1,7})\s+(?:Group\s+\d+\s+)?Pid\s+\d+ on\s+([\w.-]+) device\s+(\d{1,4})"
)
_RENDEZVOUS = re.compile(
    rb"local_ranks=\[(\d+)[^\]]*\][\s\S]{0,400}?global_ranks=\[(\d+)[^\]]*\]"
    rb"(?:[\s\S]{0,400}?global_world_sizes=\[(\d+))?"
)
_SRUN = re.compile(rb"(?m)^srun: error: ([\w.-]+): tasks? ([\d,-]+): ")
_HOST = re.compile(rb"(?m)^(\d{1,3}(?:\.\d{1,3}){3})[ \t]+([A-Za-z][\w.-]*)\b")
_MIDDLE = re.compile(rb"\[[Rr]ank ?(\d{1,7})\](?!:)")
_LOCAL_HOSTS = frozenset({"localhost", "127.0.0.1", "::1"})


@dataclass(slots=True)
class Heard:
    """What a text states.

    Attributes
    ----------
    ranks : Counter of int
        Ranks that speak.
    middle : Counter of int
        Numbers of `[rankN]` within lines, which some loggers fill with a process ID.
    communicators : Counter of (int, int)
        NCCL's rank and size.
    worlds : Counter of int
        Sizes of the job.
    nodes : int
        Machines that the job has at least; 0 if the text does not say.
    hosts : Counter of str
        Machines that speak.
    placed : dict of int to (str, int)
        Machine and local rank of ranks.
    offsets : set of int
        First rank of the machine.
    tasks : dict of int to str
        Machines of a launcher's tasks.
    addresses : dict of str to str
        Machines by address.
    peers : set of str
        Hosts to which others had a connection.
    """

    ranks: Counter[int] = field(default_factory=Counter)
    middle: Counter[int] = field(default_factory=Counter)
    communicators: Counter[tuple[int, int]] = field(default_factory=Counter)
    worlds: Counter[int] = field(default_factory=Counter)
    nodes: int = 0
    hosts: Counter[str] = field(default_factory=Counter)
    placed: dict[int, tuple[str, int]] = field(default_factory=dict)
    offsets: set[int] = field(default_factory=set)
    tasks: dict[int, str] = field(default_factory=dict)
    addresses: dict[str, str] = field(default_factory=dict)
    peers: set[str] = field(default_factory=set)


def writing_host(line: str) -> str | None:
    """Return the host that a line of NCCL names as its writer, or None.

    Examples
    --------
    >>> writing_host("n1:7:9 [0] NCCL WARN Got completion from peer n2<4711> with error 12")
    'n1'
    """
    match = _NCCL_PROCESS.match(line.encode())
    return None if match is None else match[1].decode().rpartition(":")[0]


def may_state_fact(line: bytes) -> bool:
    """Return whether a line has a word without which no line states a fact."""
    return _FACTS.search(line) is not None or _HOST.match(line) is not None


def hear(text: bytes, lines: JoinedLines | None = None) -> Heard:
    r"""Read what lines without prefixes state.

    Parameters
    ----------
    text : bytes
    lines : JoinedLines, optional
        At least the lines that `may_state_fact`; all by default.

    Examples
    --------
    >>> heard = hear(b"n1:7:9 [0] NCCL INFO ncclCommInitRank comm 0x1 rank 3 nranks 4 cudaDev 0\n")
    >>> dict(heard.communicators), dict(heard.hosts)
    ({(3, 4): 1}, {'n1': 1})
    """
    heard = Heard()
    lines = lines or JoinedLines.whole(text)
    start = lines.part_before(_HEAD_BYTES)
    facts = find_matching_lines(_FACTS, lines)
    text = b"".join([text[begin : end + 1] for begin, end in facts])
    _hear_ranks(text, heard)
    heard.nodes = max(
        max(map(int, _NODES.findall(text)), default=0),
        max(map(int, _LATER_NODE.findall(text)), default=-1) + 1,
    )
    if b"NCCL" in text:
        for process, count in Counter(_NCCL_PROCESS.findall(text)).items():
            heard.hosts[process.decode().rpartition(":")[0]] += count
        for match in _NCCL_NET.finditer(text):
            host = match[1].decode().rpartition(":")[0]
            own = {address.decode() for address in _INTERFACE.findall(match[0])}
            heard.addresses.update((address, host) for address in own - _LOCAL_HOSTS)
        for match in _NCCL_RANK.finditer(text):
            heard.communicators[int(match[1]), int(match[2])] += 1
    if b">" in text:
        heard.peers.update({host.decode() for host in _PEER.findall(text)} - _LOCAL_HOSTS)
    if b"ank" in text:
        _hear_torchrun(text, heard)
    _hear_slurm(text, start, heard)
    return heard


def _hear_ranks(text: bytes, heard: Heard) -> None:
    if b"orld" in text or b"ORLD" in text:
        _count(_WORLD, text, heard.worlds)
    if b"ank" not in text and b"RANK" not in text:
        return  # the searches below cost more than this one
    for hint, pattern in _SPEAKERS:
        if hint in text:
            _count(pattern, text, heard.ranks)
    if b"ank" in text or b"GLOBAL_RANK" in text:
        for match in (*_RANK_OF.finditer(text), *_MEMBER.finditer(text)):
            heard.worlds[int(match[2])] += 1
            if int(match[1]) < int(match[2]):
                heard.ranks[int(match[1])] += 1
    if b"[rank" in text or b"[Rank" in text:
        _count(_MIDDLE, text, heard.middle)


def _count(pattern: re.Pattern[bytes], text: bytes, counts: Counter[int]) -> None:
    """Count the numbers that a pattern captures."""
    for number, count in Counter[bytes](pattern.findall(text)).items():
        counts[int(number)] += count


def _hear_torchrun(text: bytes, heard: Heard) -> None:
    if b"local_rank: " in text:
        for match in _FAILURE.finditer(text):
            host, rank, local = match[1].decode(), int(match[2]), int(match[3])
            heard.offsets.add(rank - local)
            if host not in _LOCAL_HOSTS:
                heard.placed[rank] = (host, local)
    for match in _NCCL_TESTS.finditer(text[:_HEAD_BYTES]):
        heard.placed[int(match[1])] = (match[2].decode(), int(match[3]))
    if b"global_rank" in text:
        _hear_agents(text, heard)
    if b"global_ranks=" in text:
        for match in _RENDEZVOUS.finditer(text):
            heard.offsets.add(int(match[2]) - int(match[1]))
            if match[3]:
                heard.worlds[int(match[3])] += 1


def _hear_agents(text: bytes, heard: Heard) -> None:
    """Read torchrun's events, and DeepSpeed's map of machines to ranks."""
    for match in _AGENT.finditer(text):
        heard.placed.setdefault(int(match[1]), (match[2].decode(), int(match[3])))
    for mapping in _MAPPING.finditer(text):
        for host, listed in _MAPPED.findall(mapping[1]):
            for local, rank in enumerate(listed.split(b",")):
                if rank.strip():
                    heard.placed.setdefault(int(rank), (host.decode(), local))


def _hear_slurm(text: bytes, start: bytes, heard: Heard) -> None:
    if b"srun: error: " in text:
        for match in _SRUN.finditer(text):
            heard.tasks.update((task, match[1].decode()) for task in _tasks(match[2].decode()))
    for match in _HOST.finditer(start):
        heard.addresses.setdefault(match[1].decode(), match[2].decode())


def _tasks(text: str) -> Iterator[int]:
    """Yield the tasks of srun's list, as in `0-3,7`; a broken list yields none."""
    for part in text.split(","):
        first, _, last = part.partition("-")
        if first.isdigit() and (last.isdigit() or not last):
            stop = int(last or first)
            if stop - int(first) < 100_000:
                yield from range(int(first), stop + 1)
