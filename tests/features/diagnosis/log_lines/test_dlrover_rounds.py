"""Lines of DLRover's master about its nodes, in the form of DLRover 0.6.1."""

from __future__ import annotations

from forewarn.features.diagnosis.log_lines.dlrover_rounds import completed_rounds

HEAD = b"[2026-03-01 10:%02d:04,725] [INFO] [rdzv_manager.py:%d:%s] "
LOG = b"\n".join(
    [
        HEAD
        % (0, 314, b"join_rendezvous")
        + b"Worker node with id: 2, rank: 2 and ip:  joining elastic-training rendezvous for "
        b"round: 0.",
        HEAD % (1, 253, b"_log_rendezvous_info")
        + b"Completed 0 round rendezvous of network-check is {0: 0} ",
        HEAD % (1, 253, b"_log_rendezvous_info")
        + b"Completed 0 round rendezvous of elastic-training is {0: 0, 1: 1, 2: 2} ",
        b"The times of nodes to join rendezvous are {0: 0.36, 1: 0.0, 2: 0.28}.",
        HEAD
        % (2, 210, b"_check_rdzv_completed")
        + b"Waiting nodes(required:2/3) in rendezvous(size:1) are {1: 1}, lacking ranks(size:2) "
        b"are [0, 2] for round 1",
        HEAD % (3, 253, b"_log_rendezvous_info")
        + b"Completed 1 round rendezvous of elastic-training is {0: 0, 1: 1, 3: 2} ",
    ]
)


def test_spare_has_the_rank_of_the_lost_node_in_the_next_round() -> None:
    rounds = completed_rounds(LOG)
    assert [(each.number, each.ranks) for each in rounds] == [
        (0, {0: 0, 1: 1, 2: 2}),
        (1, {0: 0, 1: 1, 3: 2}),
    ]


def test_incomplete_or_other_text_has_no_round() -> None:
    assert completed_rounds(b"") == []
    assert completed_rounds(LOG[: LOG.index(b"2: 2}")]) == []
    assert completed_rounds(b"Completed 1 round rendezvous of elastic-training is {a: b}") == []
