"""The contract of failure models, and what is special about this one."""

from collections.abc import Callable
from pathlib import Path

import pytest
from skops.io.exceptions import UntrustedTypesFoundException

from forewarn.pipelines.training.model_contract import CLAUSES, TRAINING
from forewarn_hist_gradient_boosting.model import HistGradientBoosting


@pytest.mark.parametrize("clause", CLAUSES, ids=lambda clause: clause.__name__)
def test_model_meets_contract(clause: Callable[[type], None]) -> None:
    clause(HistGradientBoosting)


def test_untrusted_type_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    HistGradientBoosting(seed=0, max_iter=3).fit(*TRAINING.arguments).save(tmp_path)
    monkeypatch.setattr(HistGradientBoosting, "trusted", [])
    with pytest.raises(UntrustedTypesFoundException):
        HistGradientBoosting.load(tmp_path)
