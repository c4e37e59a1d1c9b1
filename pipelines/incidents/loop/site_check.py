"""Site check of a machine, run before it returns to service."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from forewarn.features.errors import InputError
from forewarn.pipelines.incidents.loop.site_command import command_fields, run_site_command

__all__ = ["CheckResult", "CheckState", "SiteCheck"]

_FIELDS = frozenset({"machine", "action", "reservation"})


class CheckState(IntEnum):
    """Result of a check, by exit code as in Nagios and gcm.

    A check that times out, cannot be started, is killed or ends with another code is `UNKNOWN`.
    """

    OK = 0
    WARNING = 1
    CRITICAL = 2
    UNKNOWN = 3


@dataclass(frozen=True, slots=True)
class CheckResult:
    """Result of a check.

    Attributes
    ----------
    state : CheckState
    detail : str
        Last line of the output, or the reason why there is none.
    output : str
        Last 4,000 characters of the output.
    """

    state: CheckState
    detail: str
    output: str = ""

    @property
    def passed(self) -> bool:
        """Tell whether the machine may return to service; a warning does not prevent it."""
        return self.state <= CheckState.WARNING


@dataclass(frozen=True, slots=True)
class SiteCheck:
    """Command by which a site checks a machine.

    Attributes
    ----------
    command : tuple of str
        Program and arguments, run without a shell. `{machine}`, `{action}` and `{reservation}` are
        replaced: `("srun", "-w", "{machine}", "--reservation={reservation}", "/opt/check")`.
    timeout : float
        Seconds.
    """

    command: tuple[str, ...]
    timeout: float = 600.0

    def __post_init__(self) -> None:
        """Validate the command.

        Raises
        ------
        InputError
            If it is empty or names an unknown field.
        """
        if not self.command or not self.command[0]:
            raise InputError("`check` is empty, expected a list of program and arguments.")
        unknown = command_fields(self.command) - _FIELDS
        if unknown:
            raise InputError(
                f"`check` has {{{min(unknown)}}}, expected {{machine}}, {{action}} or "
                "{reservation}."
            )

    def run(self, machine: str, *, action: int, reservation: str = "") -> CheckResult:
        """Check one machine and wait for the result.

        Raises
        ------
        InputError
            If the name is not a hostname, or could be read as an option.
        """
        values = {"machine": machine, "action": str(action), "reservation": reservation}
        result = run_site_command(self.command, values, timeout=self.timeout)
        code = CheckState.UNKNOWN if result.code is None else result.code
        state = CheckState(code) if 0 <= code <= CheckState.UNKNOWN else CheckState.UNKNOWN
        return CheckResult(state, result.detail, result.output)
