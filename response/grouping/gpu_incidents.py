"""Grouping: to which open incident each new finding belongs, and which incidents it opens."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from forewarn.response.state.finding import Finding, Provenance
from forewarn.response.state.incident import Incident

__all__ = ["Grouping", "group_findings", "resolve_gpu_serial"]


@dataclass(slots=True)
class Grouping:
    """The incidents of some findings.

    Attributes
    ----------
    incidents : list of int
        One number a finding, in order. A number below 0 is an incident that is to be opened: -1 is
        that of the first of `opened`.
    opened : list of Finding
        The first finding of each incident that is to be opened.
    """

    incidents: list[int] = field(default_factory=list)
    opened: list[Finding] = field(default_factory=list)


def group_findings(findings: Sequence[Finding], open_incidents: Iterable[Incident]) -> Grouping:
    """Put each finding into the newest open incident of its GPU, or into a new one.

    A GPU is known by its serial, else by its PCI address, else by its slot. A finding without any
    is about its machine, which has an incident of its own. A serial that becomes known later for
    a location names the same GPU; another serial at the same location names another GPU. A
    location that only a shared token names brings no finding of a host into its incident.

    Parameters
    ----------
    findings : sequence of Finding
        New ones.
    open_incidents : iterable of Incident
        Those of the same machines. Shared incidents are left out: an event on many machines is
        found in a step of its own (`shared_incidents`).
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
    """Return the serial of an incident's GPU; a shared token may not name that of a host.

    Parameters
    ----------
    opened_for : str or None
        Serial of the finding that opened the incident.
    findings : iterable of Finding
        All of the incident.
    """
    if opened_for is not None:
        return opened_for
    named = [finding for finding in findings if finding.gpu_serial is not None]
    by_host = [finding for finding in named if finding.vouched is Provenance.HOST]
    return next((finding.gpu_serial for finding in by_host or named), None)


@dataclass(slots=True)
class _Subject:
    """The GPU that an incident is about; without a serial and a location it is the machine."""

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
        """Tell whether a finding is at one of its locations, or both are about the machine."""
        if not finding.location:
            return finding.gpu_serial is None and not self.locations and not self.serials
        vouchers = {Provenance.HOST, finding.vouched}
        return any((finding.location, voucher) in self.locations for voucher in vouchers)


def _matching(finding: Finding, subjects: Sequence[_Subject]) -> _Subject | None:
    """Return the newest subject of the same serial, else the newest at the same location."""
    serial = finding.gpu_serial
    by_serial = (subject for subject in subjects if serial in subject.serials)
    by_location = (s for s in subjects if s.is_at(finding) and (serial is None or not s.serials))
    return next(by_serial, None) or next(by_location, None)
