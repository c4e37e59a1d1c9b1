from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forewarn.features.diagnosis.log_lines.log_pattern import LogPattern
from forewarn.features.diagnosis.log_lines.named_peer import Peer, named_peers


def pattern(expression: str) -> LogPattern:
    return LogPattern("lost", expression, "cascade", "fabric", "notice", "lost a peer", "check it")


ADDRESS = pattern(r"lost (?P<peer_address>\S+)|gone: (?P<peer_address_2>\S+)")
RANKS = pattern(r"lost ranks? \[?(?P<peer_rank>[\d, ]+)")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("10.0.0.4", [Peer(address="10.0.0.4")]),
        ("::ffff:10.0.0.4", [Peer(address="10.0.0.4")]),
        ("FE80::1%eth0", [Peer(address="fe80::1")]),
        ("node-3.", [Peer(host="node-3")]),
        ("localhost", []),
        ("127.0.0.1", []),
        ("::1", []),
        ("0.0.0.0", []),
    ],
)
def test_addresses_and_hosts(text: str, expected: list[Peer]) -> None:
    assert list(named_peers(ADDRESS, f"lost {text}")) == expected
    assert list(named_peers(ADDRESS, f"it is gone: {text}")) == expected


def test_lines_without_a_peer() -> None:
    assert named_peers(ADDRESS, "nothing is missing") == ()
    assert named_peers(pattern("lost"), "lost 10.0.0.4") == ()
    assert named_peers(pattern(r"(?P<speaker>\d+) lost"), "7 lost") == ()


def test_host_lists() -> None:
    hosts = pattern(r"lost (?P<peer_host>\S+)")
    assert named_peers(hosts, "lost node-[3-4,7]") == (
        *(Peer(host="node-3"), Peer(host="node-4"), Peer(host="node-7")),
    )
    assert named_peers(hosts, "lost node-[3-") == ()
    assert named_peers(hosts, "lost node-[1-9000]") == ()


def test_tasks_are_not_ranks() -> None:
    task = pattern(r"task:(?P<peer_task>\d+)")
    assert named_peers(task, "/job:a/task:3") == (Peer(task=3),)


def test_impossible_rank_is_no_peer() -> None:
    """An unset rank of HCCL is 2**32 - 1, of which no digit is a rank."""
    assert named_peers(RANKS, "lost rank 123456789") == ()
    assert named_peers(RANKS, "lost rank 4294967295") == ()


@given(st.lists(st.integers(0, 9_999), min_size=1, max_size=9), st.sampled_from([", ", ",", " "]))
def test_lists_of_ranks(ranks: list[int], separator: str) -> None:
    """Each rank of a list is a peer once, in the order of the list."""
    line = f"lost ranks [{separator.join(map(str, ranks))}]"
    assert [peer.rank for peer in named_peers(RANKS, line)] == list(dict.fromkeys(ranks))


@given(st.ip_addresses())
def test_every_address_is_its_own_name(address: object) -> None:
    peers = named_peers(ADDRESS, f"lost {address}")
    assert len(peers) <= 1
    assert all(peer.host is None and peer.address for peer in peers)
