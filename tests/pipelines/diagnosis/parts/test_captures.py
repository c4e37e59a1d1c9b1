"""Files of any name are listed once for all parts of one reading of a job."""

from __future__ import annotations

from pathlib import Path
from unittest import mock

from forewarn.pipelines.diagnosis.diagnose_job import diagnose
from forewarn.pipelines.diagnosis.parts import captures

STEPS = "".join(f"2026-03-04 12:00:{n:02d} step {n} loss 2.5\n" for n in range(20))


def test_folder_is_listed_once_per_reading(tmp_path: Path) -> None:
    for rank in range(3):
        (tmp_path / f"rank{rank}.log").write_text(STEPS)
    with mock.patch.object(
        captures, "_files_elsewhere", side_effect=captures._files_elsewhere
    ) as listing:
        assert len(diagnose(tmp_path).files) == 3
        assert listing.call_count == 1
        (tmp_path / "rank3.log").write_text(STEPS)
        assert len(diagnose(tmp_path).files) == 4
