"""Assignment of new findings to open or new incidents of their GPU."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from forewarn.response.state.finding import Finding, Provenance
from forewarn.response.state.incident import Incident

__all__ = ["Grouping", "group_findings", "resolve_gpu_serial"]


@dataclass(slots=True)
class Grouping:
    """Incident of each finding.

    Attributes
    ----------
    incidents : list of int
        One number per finding, in order. A negative number is a new incident: -1 is that of the
        first of `opened`.
    opened : list of Finding
        The first finding of each new incident.
    """

    incidents: list[int] = field(default_factory=list)
    opened: list[Finding] = field(default_factory=list)


def group_findings(findings: Sequence[Finding], open_incidents: Iterable[Incident]) -> Grouping:
    """Assign each finding to the newest open incident of its GPU, or to a new incident.

    A GPU is identified by its serial, else by its PCI address, else by its slot. A finding with
    none of them is about the machine, which has an incident of its own. A serial that becomes known
    later for a location identifies the same GPU; another serial at that location is another GPU. A
    location that only a shared token reports never joins a host's finding to its incident.

    Parameters
    ----------
    findings : sequence of Finding
        New findings.
    open_incidents : iterable of Incident
        Open incidents of the same machines. Shared ones are skipped: `shared_incidents` detects
        events separately.
    """
    subjects: dict[str, list[_Subject]] = defaultdict(list)
    for incident in sorted(open_incidents, key=lambda incident: -incident.id):
        if not incident.shared:
            subjects[incident.machine].append(_Subject.from_incident(incident))
    grouping = Grouping()
    for finding in findings:
        of_machine = subjects[finding.machine]
        subject = _matching(finding, of_machine)
        if subject is None:
            grouping.opened.append(finding)
            subject = _Subject(-len(grouping.opened))
            of_machine.insert(0, subject)
        subject.add(finding)
        grouping.incidents.append(subject.incident)
    return grouping


def resolve_gpu_serial(opened_for: str | None, findings: Iterable[Finding]) -> str | None:
    """Return the GPU serial of an incident; findings of the host take precedence.

    Parameters
    ----------
    opened_for : str or None
        Serial of the finding that opened the incident.
    findings : iterable of Finding
        All findings of the incident.
    """
    if opened_for is not None:
        return opened_for
    named = [finding for finding in findings if finding.gpu_serial is not None]
    by_host = [finding for finding in named if finding.vouched is Provenance.HOST]
    return next((finding.gpu_serial for finding in by_host or named), None)


@dataclass(slots=True)
class _Subject:
    """The GPU of an incident; the machine if neither serial nor location is known."""

    incident: int
    serials: set[str] = field(default_factory=set)
    locations: set[tuple[str, Provenance]] = field(default_factory=set)

    @classmethod
    def from_incident(cls, incident: Incident) -> _Subject:
        subject = cls(incident.id, set() if incident.gpu_serial is None else {incident.gpu_serial})
        for finding in incident.findings:
            subject.add(finding)
        return subject

    def add(self, finding: Finding) -> None:
        if finding.gpu_serial is not None:
            self.serials.add(finding.gpu_serial)
        if finding.location:
            self.locations.add((finding.location, finding.vouched))

    def is_at(self, finding: Finding) -> bool:
        """Tell whether a finding is at a known location, or both are about the machine."""
        if not finding.location:
            return finding.gpu_serial is None and not self.locations and not self.serials
        accepted = {Provenance.HOST, finding.vouched}
        return any((finding.location, provenance) in self.locations for provenance in accepted)


def _matching(finding: Finding, subjects: Sequence[_Subject]) -> _Subject | None:
    """Return the newest subject with the same serial, else the newest at the same location."""
    serial = finding.gpu_serial
    by_serial = (subject for subject in subjects if serial in subject.serials)
    by_location = (s for s in subjects if s.is_at(finding) and (serial is None or not s.serials))
    return next(by_serial, None) or next(by_location, None)
