"""One pass over a fleet for some instances: the data that features are computed from."""

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
    """Data of some instances, read from a fleet slice by slice.

    Reading takes most of the time and does not depend on fitted parameters. Training sets of
    several spans, and several predictors, share one reading.

    Attributes
    ----------
    plan : FeaturePlan
    instances : Instances
    failures : Failures
        Failures of the fleet.
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
        plan : FeaturePlan
        fleet : Fleet
            A timeline or slices of one. Starts `plan.reach` before the first instance.
        instances : Instances
            Instances of that fleet.
        with_codes : bool
            Also find the most frequent codes, which feature extractors are fitted to.
        span_sums : GatheredSums, optional
            Filled in for later use of the same spans.
        """
        n, n_gpus = len(instances), len(fleet.serials)
        readings = FleetChannelReader(plan, n, with_codes=with_codes, span_sums=span_sums)
        facts = InstanceFacts(plan, fleet, n)

        def prepare_slice(part: FleetSlice) -> SliceChannelReader:
            rows, inside = slice_instances(part, n_gpus, instances)
            facts.read(part, inside, rows)
            return readings.prepare_slice(part, inside, rows)

        parts = fleet.slices()  # prepare the next slice while columns of the current one are read
        readers = (
            imap_threads(prepare_slice, parts, 1)
            if fleet.n_slices > 1
            else map(prepare_slice, parts)
        )
        for number, reader in enumerate(readers, 1):
            readings.read(reader, last=number == fleet.n_slices)
            del reader  # free the slice before the next one is in memory
        return cls(plan, instances, fleet.failures, readings.readings(), facts)
