"""Symptoms of lines that break off, which say less than the whole lines of other ranks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cached_property

from forewarn.features.diagnosis.log_lines.cut_line import whole_of_cut_line
from forewarn.features.diagnosis.log_lines.log_scan import CUT_EXCEPTION, UNKNOWN_ERRORS
from forewarn.features.diagnosis.log_lines.log_template import log_template
from forewarn.models.diagnosis.crash.rank_exit import RankExit, Symptom

__all__ = ["WaitLines"]


class WaitLines:
    """The lines of ranks that waited for others or lost them.

    A part of such a line is no error of its own kind, and its writer did not stay silent.

    Parameters
    ----------
    symptoms : iterable of Symptom
    """

    def __init__(self, symptoms: Iterable[Symptom]) -> None:
        self._waits = [s for s in symptoms if s.role == "cascade" and s.is_counted]

    @cached_property
    def _symptoms(self) -> dict[str, Symptom]:
        """One symptom by its line for each template: thousands of ranks write the same one."""
        alike = {log_template(wait.line): wait for wait in self._waits}
        return {wait.line: wait for wait in alike.values()}

    def has_part(self, lines: Sequence[str]) -> bool:
        """Return whether a line is only a part of one of these lines."""
        wholes = self._symptoms
        return bool(wholes) and any(whole_of_cut_line(line, wholes) is not None for line in lines)

    def explain(self, symptom: Symptom) -> Symptom:
        """Return the symptom with the meaning of the whole line, if its line is a part of one."""
        is_unknown = symptom.pattern in (*UNKNOWN_ERRORS, CUT_EXCEPTION.id)
        if symptom.role != "root" or symptom.is_report or not is_unknown:
            return symptom
        whole = whole_of_cut_line(symptom.line, self._symptoms)
        if whole is None:
            return symptom
        seen = self._symptoms[whole]
        return replace(seen, line=symptom.line, time=symptom.time, writer=symptom.writer, peers=())

    def explain_end(self, end: RankExit) -> RankExit:
        """Return the exit of a rank with explained symptoms."""
        return replace(end, symptoms=tuple(self.explain(symptom) for symptom in end.symptoms))
