"""One reading of a fleet for some instances: whatever measures are made of."""

from __future__ import annotations

from typing import NamedTuple, Self

from forewarn.features.prediction.channel_readings import (
    ChannelReadings,
    FleetChannelReader,
    SliceChannelReader,
)
from forewarn.features.prediction.feature_plan import FeaturePlan
from forewarn.features.prediction.instance_facts import InstanceFacts
from forewarn.features.prediction.instances import Instances, slice_instances
from forewarn.features.prediction.span_sums import GatheredSums
from forewarn.features.records.failures import Failures
from forewarn.features.records.fleet_timeline import Fleet, FleetSlice
from forewarn.features.threads import imap_threads

__all__ = ["FleetReading"]


class FleetReading(NamedTuple):
    """What was read of a fleet for some instances, slice after slice.

    Reading takes most of the time, and does not depend on what measures are fitted to: training
    sets of several spans, and several predictors, share one.

    Attributes
    ----------
    plan : Plan
    instances : Instances
    failures : Failures
        Of the fleet.
    readings : ChannelReadings
    facts : InstanceFacts
    """

    plan: FeaturePlan
    instances: Instances
    failures: Failures
    readings: ChannelReadings
    facts: InstanceFacts

    @classmethod
    def from_fleet(
        cls,
        plan: FeaturePlan,
        fleet: Fleet,
        instances: Instances,
        *,
        with_codes: bool = False,
        span_sums: GatheredSums | None = None,
    ) -> Self:
        """Read all slices, each of them once.

        Parameters
        ----------
        plan : Plan
        fleet : Fleet
            A timeline, or slices of one. Reaches `plan.reach` back before the first instance.
        instances : Instances
            Of that fleet.
        with_codes : bool
            Look for the most frequent codes, too: measures are fitted to them.
        span_sums : GatheredSums, optional
            Filled in, for whoever looks at the same spans again.
        """
        n, n_gpus = len(instances), len(fleet.serials)
        readings = FleetChannelReader(plan, n, with_codes=with_codes, span_sums=span_sums)
        facts = InstanceFacts(plan, fleet, n)

        def begun(part: FleetSlice) -> SliceChannelReader:
            rows, inside = slice_instances(part, n_gpus, instances)
            facts.read(part, inside, rows)
            return readings.begun(part, inside, rows)

        parts = fleet.slices()  # one is begun while columns of the one before are read
        readers = imap_threads(begun, parts, 1) if fleet.n_slices > 1 else map(begun, parts)
        for number, reader in enumerate(readers, 1):
            readings.read(reader, last=number == fleet.n_slices)
            del reader  # or two slices would be in memory at a time
        return cls(plan, instances, fleet.failures, readings.readings(), facts)
