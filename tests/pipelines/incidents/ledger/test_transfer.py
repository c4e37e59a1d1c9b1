from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from forewarn.features.time_units import Nanoseconds
from forewarn.pipelines.incidents.ledger.database import LedgerError
from forewarn.pipelines.incidents.ledger.ledger import Ledger
from forewarn.pipelines.incidents.ledger.transfer import copy_ledger
from forewarn.response.state.action import Action, ActionState
from forewarn.response.state.decision import Decision
from forewarn.response.state.finding import Finding

NOW = Nanoseconds(100)


def no_limit(recent: object) -> None:
    del recent


def test_copied_ledger_has_same_content(
    ledger: Ledger,
    tmp_path: Path,
    finding: Callable[..., Finding],
    decision: Callable[..., Decision],
    action: Callable[..., Action],
) -> None:
    with Ledger.open(f"sqlite:///{tmp_path / 'old.db'}") as old:
        old.record_findings([finding("a"), finding("b", "m2")], now=NOW)
        old.decide(decision(1))
        recorded = old.act(action(1), no_limit)
        assert isinstance(recorded, Action)
        old.advance(recorded, ActionState.SENT, now=NOW)
        old.switch(False, now=NOW, who="ann", why="we move")
        assert copy_ledger(old, ledger) == 2 + 2 + 2 + 1 + 1 + 2 + 1
        assert ledger.open_incidents() == old.open_incidents()
        assert ledger.switched_off() == old.switched_off()
    ledger.record_findings([finding("c", "m3")], now=NOW)
    later = ledger.act(action(3, "m3"), no_limit)
    assert isinstance(later, Action)
    assert (ledger.open_incidents()[-1].id, later.id) == (3, 2)
    with pytest.raises(LedgerError, match="is not empty"):
        copy_ledger(ledger, ledger)
