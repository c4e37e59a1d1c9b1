"""What a landing found out about serials, in words."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from forewarn.pipelines.ingest.landed import Landed

__all__ = ["serial_notes"]

_EXAMPLES = 3


def serial_notes(landed: Landed) -> Iterator[str]:
    """Yield a line on boards with several GPUs and on serials that do not match, if there are any.

    Parameters
    ----------
    landed : Landed
    """
    if landed.boards:
        yield (
            "boards with several GPUs, each of which is named SERIAL/UUID, in earlier records "
            f"too: {_with_gpus(landed.boards)}"
        )
    for what, boards in (("tickets", landed.ticket_boards), ("CMDB rows", landed.cmdb_boards)):
        if boards:
            yield f"{what} by the serial of a board apply to all its GPUs: {_with_gpus(boards)}"
    if landed.zeros:
        pairs = [f"{written} is taken for {serial}" for written, serial in landed.zeros.items()]
        yield (
            "serials of the CMDB or of tickets differ from those of GPUs by leading zeros: "
            f"{_some(pairs)}"
        )
    if landed.slot_conflicts:
        conflicts = [
            f"slot {slot} of {machine} ({gpus[0]} and {gpus[1]})"
            for machine, slot, gpus in sorted(landed.slot_conflicts)
        ]
        yield (
            f"two GPUs report one slot at one time: {_some(conflicts)}; both have records, and "
            "their slots are not certain"
        )
    if landed.unknown_tickets:
        serials = sorted(landed.unknown_tickets)
        yield f"no record has these serials of tickets ({len(serials)}): {_some(serials)}"


def _with_gpus(boards: Mapping[str, int]) -> str:
    return _some([f"{serial} ({n_gpus} GPUs)" for serial, n_gpus in boards.items()])


def _some(texts: Collection[str]) -> str:
    """Return the first few."""
    first = ", ".join(list(texts)[:_EXAMPLES])
    return f"{first}, ..." if len(texts) > _EXAMPLES else first
