from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest
from hypothesis import settings

# Read by the libraries when a test first imports them: no start-up notes of TensorFlow, no window.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("MPLBACKEND", "Agg")

# CI runs the same examples every time, so that a red build can be run again; by hand they vary.
settings.register_profile("default", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True, database=None, max_examples=200)
# For the parsers of what hosts say, once in a while: pytest --hypothesis-profile=thorough tests/...
settings.register_profile("thorough", deadline=None, max_examples=10_000)
settings.load_profile("ci" if os.environ.get("CI") else "default")

ROOT = Path(__file__).parent
# The files that take longest, the longest first: they begin before the others, so that no worker
# is left with one of them at the end. Some of them wait for real time, and then another one works.
LONGEST = (
    *("dags/test_airflow.py", "test_notebooks.py", "pipelines/collector/test_site.py"),
    *("pipelines/backtest/test_run.py", "pipelines/training/test_retrain_again.py"),
    *("pipelines/training/test_retrain.py", "pipelines/sandbox/test_local_services.py"),
    *("pipelines/at_risk/test_score.py", "pipelines/at_risk/test_round_trip.py"),
    *("pipelines/collector/test_killed.py", "real_data/test_azure.py"),
    *("models/prediction/test_contract.py", "models/detection/test_detector.py"),
)
# These folders have a detector in common, which is costly to fit.
IN_ONE = ("pipelines/detection",)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let one worker of pytest-xdist run a whole file, and start with the longest."""
    for item in items:
        file = item.path.relative_to(ROOT)
        group = file.parent if file.parent.as_posix() in IN_ONE else file
        item.add_marker(pytest.mark.xdist_group(group.as_posix()))
    rank = {name: place for place, name in enumerate(LONGEST)}
    items.sort(
        key=lambda item: rank.get(item.path.relative_to(ROOT).as_posix(), len(rank)),
    )


def skip_or_fail(reason: str) -> NoReturn:
    """Skip, or fail where FOREWARN_REQUIRE_SYSTEM=1 says that everything has to be there."""
    if os.environ.get("FOREWARN_REQUIRE_SYSTEM") == "1":
        pytest.fail(f"{reason} (FOREWARN_REQUIRE_SYSTEM=1)")
    pytest.skip(reason)


@pytest.fixture(scope="session")
def require_program() -> Callable[[str, str], Path]:
    """Return `find(command, debian_package)`: the path of a system program, or a skip."""

    def find(command: str, package: str) -> Path:
        found = shutil.which(command)
        if found is None:
            skip_or_fail(f"`{command}` is not installed: apt-get install {package}")
        return Path(found)

    return find


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Return the folder of the shared data sets, beside the repository, or skip."""
    folder = Path(__file__).parents[2] / "shared" / "data"
    if not folder.is_dir():
        skip_or_fail("the shared data sets are not there: expected ../shared/data")
    return folder
