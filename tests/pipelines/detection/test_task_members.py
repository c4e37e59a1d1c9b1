from __future__ import annotations

from pathlib import Path

import pytest

from forewarn.features.errors import InputError
from forewarn.pipelines.detection.task_members import Membership


def test_tasks_and_groups_by_machine(tmp_path: Path) -> None:
    path = tmp_path / "tasks.csv"
    path.write_text("task,machine,group\njob,n1,0\njob,n2,\njob,n1,0\n7,007,1\n")
    found = Membership.open(path)
    assert found.task == {"n1": "job", "n2": "job", "007": "7"}
    assert found.group == {"n1": "0", "n2": "", "007": "1"}
    path.write_text("machine, task\nn1, job\n\n")
    assert Membership.open(path) == Membership({"n1": "job"}, {"n1": ""})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("task,node\njob,n1\n", "column `machine` is missing, found task, node"),
        ("task,machine\na,n1\nb,n1\n", "line 3: machine 'n1' occurs twice"),
        ("", "column `task` is missing, found nothing"),
        ("task,machine\njob,n1,0\n", "line 2 has 3 cells, expected 2"),
        ("task,machine\njob,\n", "line 2 lacks a task or a machine"),
        ("task,machine,group\na,n1,0\na,n1,1\n", "line 3: machine 'n1' occurs twice"),
    ],
)
def test_invalid_table_is_one_line(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "tasks.csv"
    path.write_text(text)
    with pytest.raises(InputError, match=said):
        Membership.open(path)


def test_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        Membership.open(tmp_path / "none.csv")
