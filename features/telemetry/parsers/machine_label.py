"""Choice of the label that names the machine, which differs by exporter, scraper and site."""

from __future__ import annotations

import ipaddress
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from forewarn.features.telemetry.telemetry_rows import is_host_name

__all__ = ["MACHINE_LABELS", "LabelObservation", "MachineLabels", "choose_labels"]

# In order of preference among equally good labels.
MACHINE_LABELS = (
    *("Hostname", "hostname", "instance_hostname", "node", "kubernetes_node", "nodename"),
    *("node_name", "kubernetes_io_hostname", "host", "exported_hostname", "exported_node"),
    *("exported_instance", "instance"),
)
# Names that Kubernetes and Docker give to the pod or container of an exporter.
_POD = re.compile(
    r".*(?:dcgm|exporter).*-[a-z0-9]{5}|(?:nvidia-)?dcgm-exporter|(?=.*[a-f])[0-9a-f]{12}"
)
_PORT = re.compile(r":[0-9]{1,5}$")
_MAX_MOVED_SHARE = 0.1  # if more GPUs changed address, exporters were replaced
_MOSTLY_KNOWN = -0.5  # rank of a label half of whose names are in the CMDB
_LOCAL = ("localhost", "127.0.0.1", "0.0.0.0")
# Reason for rejecting a label, by the deciding part of its rank.
_REJECTION_REASONS = (
    "fewer of its names are in the CMDB",
    "several machines share a name",
    "it names pods or containers of the exporter",
    "it changes more often",
    "another label was used before",
    "it holds addresses",
    "it comes later in the order of preference",
)
Layout = frozenset[str]


@dataclass(frozen=True, slots=True)
class LabelObservation:
    """A GPU with the labels of one series.

    Attributes
    ----------
    gpu : str
        Its UUID or serial.
    slot : int or None
        Its index on its machine; two GPUs with one index are on two machines.
    labels : mapping of str to str
    times : tuple of float
        Times of the samples.
    """

    gpu: str
    slot: int | None
    labels: Mapping[str, str]
    times: tuple[float, ...] = (0.0,)


@dataclass(frozen=True, slots=True)
class MachineLabels:
    """The labels that name the machine, by the set of labels of a series.

    Attributes
    ----------
    ranked : mapping of frozenset of str to tuple of str
        Candidate labels of a series, the best one first.
    machine_of_gpu : mapping of str to str
        Machines of GPUs that were never seen on another one.
    known : frozenset of str
        Machines of the CMDB.
    chosen : mapping of str to str
        The chosen label where there was a choice, "" for none; input of the next choice.
    reasons : tuple of str
        The choices and their reasons, as messages.
    """

    ranked: Mapping[Layout, tuple[str, ...]] = field(default_factory=dict)
    machine_of_gpu: Mapping[str, str] = field(default_factory=dict)
    known: frozenset[str] = frozenset()
    chosen: Mapping[str, str] = field(default_factory=dict)
    reasons: tuple[str, ...] = ()

    def machine(self, labels: Mapping[str, str], gpu: str | None = None) -> str | None:
        """Return the machine of a series; None if no label names one.

        Names of pods and containers are rejected, since they change when the exporter is replaced.
        An address is used only if the GPU has no other name.

        Examples
        --------
        >>> MachineLabels().machine({"Hostname": "dcgm-exporter-6ldbb", "node": "gn01"})
        'gn01'
        >>> MachineLabels().machine({"instance": "gn03:9400"})
        'gn03'
        """
        order = self.ranked.get(_layout(labels), MACHINE_LABELS)
        names = [name for label in order if (name := _name(labels.get(label, "")))]
        for name in names:
            if name in self.known or not (_is_pod(name) or _is_address(name)):
                return name
        address = next(filter(_is_address, names), None)
        return address if gpu is None else self.machine_of_gpu.get(gpu, address)


def _name(text: str) -> str | None:
    """Return a host name without its port; None if it names no specific host."""
    name = _PORT.sub("", text)
    return name if is_host_name(name) and name not in _LOCAL else None


def _is_pod(name: str) -> bool:
    return bool(_POD.fullmatch(name))


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _key(layout: Layout) -> str:
    return ",".join(sorted(layout))


def _layout(labels: Mapping[str, str]) -> Layout:
    return frozenset(label for label in MACHINE_LABELS if labels.get(label))


def choose_labels(
    observations: Iterable[LabelObservation],
    known: Collection[str] = (),
    before: Mapping[str, str] | None = None,
) -> MachineLabels:
    """Choose the label that names the machine for each set of labels of a series.

    Preferred are labels whose names are in the CMDB, are unique to a machine, are not those of
    pods, and change least.

    Parameters
    ----------
    observations : iterable of LabelObservation
        Of the past and of the requested span.
    known : collection of str
        Machines of the CMDB.
    before : mapping of str to str, optional
        `MachineLabels.chosen` of an earlier choice.
    """
    by_layout: dict[Layout, list[LabelObservation]] = defaultdict(list)
    for observation in observations:
        by_layout[_layout(observation.labels)].append(observation)
    machines = frozenset(known)
    ranked, chosen, reasons = {}, dict[str, str](), list[str]()
    for layout, seen in sorted(by_layout.items(), key=lambda item: sorted(item[0])):
        previous = (before or {}).get(_key(layout))
        n_gpus = len({observation.gpu for observation in seen})
        ranks = {label: _rank(label, seen, machines, previous) for label in layout}
        order = sorted(ranks, key=lambda label: ranks[label])
        unstable = n_gpus * _MAX_MOVED_SHARE if previous != "" else -1.0
        ranked[layout] = tuple(label for label in order if _is_usable(ranks[label], unstable))
        best = next((label for label in ranked[layout] if not ranks[label][2]), "")
        if layout and (len(layout) > 1 or not best):
            chosen[_key(layout)] = best
        reasons.append(_reason(best, ranks, n_gpus))
    labels = MachineLabels(ranked, {}, machines)
    names = _names_of_gpus(
        (observation for seen in by_layout.values() for observation in seen), labels
    )
    return MachineLabels(ranked, dict(names), machines, chosen, tuple(reasons))


Rank = tuple[float, bool, bool, int, bool, bool, int]


def _is_usable(rank: Rank, unstable: float) -> bool:
    """Tell whether a label can name machines; addresses of pods change with the exporter."""
    known, shared, _, moves, _, is_address, _ = rank
    return not shared and not (is_address and moves > unstable and known > _MOSTLY_KNOWN)


def _rank(
    label: str, seen: list[LabelObservation], known: frozenset[str], previous: str | None
) -> Rank:
    """Return the rank of a label; smaller is better."""
    names: dict[str, set[str]] = defaultdict(set)
    gpus_at: dict[tuple[str, int, float], set[str]] = defaultdict(set)
    for observation in seen:
        name = _name(observation.labels[label]) or ""
        names[observation.gpu].add(name)
        if observation.slot is not None:
            for time in observation.times:
                gpus_at[name, observation.slot, time].add(observation.gpu)
    values = [name for of_gpu in names.values() for name in of_gpu]
    shared = sum(len(gpus) > 1 for gpus in gpus_at.values())
    return (
        -round(sum(name in known for name in values) / len(values), 2),
        2 * shared > len(gpus_at) or "" in values,
        2 * sum(map(_is_pod, values)) > len(values),
        sum(len(of_gpu) - 1 for of_gpu in names.values()),
        previous is not None and label != previous,
        2 * sum(map(_is_address, values)) > len(values),
        MACHINE_LABELS.index(label),
    )


def _reason(best: str, ranks: Mapping[str, Rank], n_gpus: int) -> str:
    """Return a message with the chosen label and the reasons against the others."""
    if not best:
        listed = ", ".join(f"`{label}`" for label in sorted(ranks)) or "none"
        return (
            f"{n_gpus} GPUs have no machine label (labels: {listed}); add one such as `node` with "
            "a relabel rule of Prometheus, or add `machine_id` to the CMDB"
        )

    def rejection(label: str) -> str:
        return _REJECTION_REASONS[next(i for i in range(7) if ranks[label][i] != ranks[best][i])]

    ordered = sorted(ranks, key=lambda label: ranks[label])
    others = [f"not `{label}`: {rejection(label)}" for label in ordered if label != best]
    why = f" ({'; '.join(others)})" if others else ""
    return f"label `{best}` names the machine of {n_gpus} GPUs{why}"


def _names_of_gpus(
    observations: Iterator[LabelObservation], labels: MachineLabels
) -> Iterator[tuple[str, str]]:
    """Yield the machine of each GPU that was seen on one machine only, by its own name."""
    names: dict[str, Counter[str]] = defaultdict(Counter)
    for observation in observations:
        name = labels.machine(observation.labels)
        if name is not None and (name in labels.known or not _is_address(name)):
            names[observation.gpu][name] += 1
    for gpu, counts in names.items():
        if len(counts) == 1:
            yield gpu, next(iter(counts))
