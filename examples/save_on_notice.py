"""Save a checkpoint when forewarn gives notice that a job may lose a machine.

    notice = Notice("/notices", os.environ["SLURM_JOB_ID"])
    for step in range(first_step, steps):
        train(step)
        # Rank 0 reads, and all ranks learn its answer in a collective: they save the same step.
        if broadcast(notice.asks_to_save() if rank == 0 else None):
            save(step)
            notice.answer(step)  # rank 0; None if nothing could be saved

On Kubernetes, mount the annotation `forewarn.io/notice` as a file by the downward API.
"""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path


class Notice:
    """The notice to one job; a missing file means that nothing is known."""

    def __init__(self, folder: str, job: str) -> None:
        self.path = Path(folder) / f"{job}.json"
        self.seen = ""

    def asks_to_save(self) -> bool:
        """Tell whether there is a new notice that asks to save."""
        try:
            text = self.path.read_text()
            save_now = bool(json.loads(text or "{}").get("save_now"))
        except (OSError, ValueError):
            text, save_now = "", False
        is_new, self.seen = text != self.seen, text
        return is_new and save_now

    def answer(self, step: int | None) -> None:
        """Tell forewarn which step was saved, if the folder can be written."""
        temporary = self.path.with_suffix(".answer~")
        with suppress(OSError):
            temporary.write_text(json.dumps({"step": step}))
            temporary.replace(self.path.with_suffix(".answer"))
