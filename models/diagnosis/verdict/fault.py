"""Fault: the component that a finding blames, and the action that it calls for."""

from __future__ import annotations

from dataclasses import dataclass

from forewarn.features.diagnosis.log_lines.log_pattern import Scope

__all__ = ["Fault"]


@dataclass(frozen=True, slots=True)
class Fault:
    """Component at fault and the recommended action.

    Attributes
    ----------
    scope : str
        As in `LogPattern`; `application` is the program, which no other machine would help.
    action : str
        Imperative phrase that starts in lower case.
    line : str
        Error that shows the fault; empty if the action says what was seen.
    needs_repair : bool
        The machine is at fault, so that the job should continue on another one.
    """

    scope: Scope
    action: str
    line: str = ""
    needs_repair: bool = False
