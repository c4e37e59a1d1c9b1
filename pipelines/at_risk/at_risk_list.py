"""The daily at-risk list and its output files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from forewarn.features.array_types import BoolArray, Float64Array
from forewarn.features.prediction.feature_plan import FeaturePlan
from forewarn.features.prediction.model_inputs import InstanceValues
from forewarn.features.prediction.span_sums import SpanSums
from forewarn.features.records.record_table import MACHINE, SLOT
from forewarn.features.time_units import HOUR
from forewarn.pipelines.at_risk.at_risk_page import render_at_risk
from forewarn.pipelines.at_risk.channel_charts import Chart, channel_charts
from forewarn.pipelines.at_risk.channel_evidence import ChannelEvidence
from forewarn.pipelines.at_risk.day_records import DayRecords
from forewarn.pipelines.at_risk.flagging_criteria import ACTION_WORDS, FlaggingCriteria
from forewarn.pipelines.at_risk.gpu_extracts import MAX_TELEMETRY_GPUS, gpu_extracts
from forewarn.pipelines.at_risk.peer_comparison import PeerComparison
from forewarn.pipelines.at_risk.reasons import Contributions, Reasons, explain_gpus
from forewarn.pipelines.at_risk.unscored_gpus import (
    NO_REPAIR,
    Causes,
    KnownFailure,
    latest_failures,
    unscored_gpus,
)
from forewarn.pipelines.rendering.templates import chance_text
from forewarn.pipelines.runtime.terminal import escape_text
from forewarn.pipelines.runtime.timestamps import format_iso, to_timestamps
from forewarn.pipelines.storage.files.atomic_files import replacing
from forewarn.pipelines.storage.files.csv_table import write_csv
from forewarn.pipelines.storage.files.file_names import arrow_path
from forewarn.pipelines.storage.files.stale_temporary_files import remove_stale_files

__all__ = ["AtRiskList", "ListCandidates", "list_summary"]

_MAX_CHARTED_GPUS = 60  # as many as the page shows


@dataclass(frozen=True, slots=True)
class AtRiskList:
    """The list of one day.

    Attributes
    ----------
    at : int
        Time of the list, nanoseconds since 1970 UTC.
    table : DataFrame
        One row per GPU, highest risk first (docs/formats.md, section 4).
    unscored : DataFrame
        Excluded GPUs with reasons. `replaced`, which is not written to files, marks silent GPUs
        whose slot has another GPU now.
    share, horizon_hours : float
    model_version : str
    hindsight : bool
        Whether the model was trained after `at` and therefore used later data.
    charts : mapping of str to tuple of Chart
        Channels with the largest contributions for each flagged GPU, by serial.
    sentences : tuple of str
        Notes on how GPUs were flagged.
    criteria : mapping
        Costs, calibration and share, JSON-serializable.
    extracts : DataFrame, optional
        Rack, events and telemetry of the GPUs (`gpu_extracts`).
    """

    at: int
    table: pd.DataFrame
    unscored: pd.DataFrame
    share: float
    horizon_hours: float
    model_version: str
    hindsight: bool = False
    charts: Mapping[str, tuple[Chart, ...]] = field(default_factory=dict)
    sentences: tuple[str, ...] = ()
    criteria: Mapping[str, Any] = field(default_factory=dict)
    extracts: pd.DataFrame | None = None

    def write(self, out: Path, *, with_page: bool = True) -> Path:
        """Write the list as Parquet, CSV, JSON and HTML below `out`; return its folder."""
        folder = out / f"date={format_iso(self.at)[:10]}"
        for day in out.glob("date=*"):
            remove_stale_files(day)
        page = self._page() if with_page else None
        with ExitStack() as files:
            path = files.enter_context(replacing(folder / "at_risk.parquet"))
            table = pa.Table.from_pandas(self.table, preserve_index=False)
            pq.write_table(table, arrow_path(path))
            if self.extracts is not None:
                path = files.enter_context(replacing(folder / "gpu_extracts.parquet"))
                table = pa.Table.from_pandas(self.extracts, preserve_index=False)
                pq.write_table(table, arrow_path(path), compression="zstd")
            texts = self._as_text()
            path = files.enter_context(replacing(folder / "at_risk.csv"))
            write_csv(texts, path)
            path = files.enter_context(replacing(folder / "at_risk.json"))
            rows = texts.to_json(orient="records", indent=1, force_ascii=False)
            path.write_text(rows + "\n", encoding="utf-8")
            path = files.enter_context(replacing(folder / "summary.json"))
            path.write_text(json.dumps(self.summary(), indent=1) + "\n", encoding="utf-8")
            if page is not None:
                path = files.enter_context(replacing(folder / "at_risk.html"))
                path.write_text(page, encoding="utf-8")
            path = files.enter_context(replacing(folder / "unscored.csv"))
            write_csv(self.unscored.drop(columns="replaced", errors="ignore"), path)
        return folder

    def _page(self) -> str:
        return render_at_risk(
            self.table,
            self.unscored,
            at=format_iso(self.at),
            share=self.share,
            horizon_hours=self.horizon_hours,
            model_version=self.model_version,
            n_flagged=int(self.table["flagged"].sum()),
            hindsight=self.hindsight,
            charts=self.charts,
            sentences=self.sentences,
            priced=bool(self.criteria.get("costs")),
        )

    def summary(self) -> dict[str, Any]:
        """Return a JSON-serializable summary of the list."""
        return {
            "at": format_iso(self.at),
            "scored": len(self.table),
            "unscored": len(self.unscored),
            "flagged": int(self.table["flagged"].sum()),
            "model_version": self.model_version,
            "hindsight": self.hindsight,
            **self.criteria,
            "sentences": list(self.sentences),
        }

    def _as_text(self) -> pd.DataFrame:
        moments = {name: _iso_texts(self.table[name]) for name in ("window_end", "valid_until")}
        return self.table.assign(**moments)


def list_summary(made: AtRiskList, *, most: int = 20) -> str:
    """Return the first flagged GPUs of a list and the number of unscored GPUs, as text."""
    flagged = made.table[made.table["flagged"]]
    lines = [f"{len(flagged)} of {len(made.table)} GPUs flagged"]
    for row in flagged.head(most).to_dict("records"):
        name = row.get("machine_id")
        machine = f" on {name}" if name and name == name else ""  # NaN if unknown
        probability = row["probability"]
        chance = "" if probability != probability else f" {chance_text(probability)}"
        action = f", recommended: {ACTION_WORDS[row['action']]}" if row.get("action") else ""
        reasons = row["reasons"] or "no single reason stands out"
        lines.append(f"  {row['gpu_serial']}{machine}{chance}{action}: {reasons}")
    if len(flagged) > most:
        lines.append(f"  and {len(flagged) - most} more")
    counts = made.unscored["reason"].value_counts().sort_index()
    if len(counts):
        left_out = ", ".join(f"{count} {reason}" for reason, count in counts.items())
        lines.append(f"not scored: {left_out}")
    return "\n".join(map(escape_text, lines))


@dataclass(frozen=True, slots=True)
class ListCandidates:
    """The GPUs of a day with their features, and the parameters of the list.

    Attributes
    ----------
    records : DayRecords
        As of `at`, with the newest instance of each of n GPUs.
    values : InstanceValues
    plan : FeaturePlan
    at : int
    step, horizon : int
        Nanoseconds between two instances of a GPU, and after an instance.
    criteria : FlaggingCriteria
    version : str
    hindsight : bool
        Whether the model was trained after `at`; every row of the list is then marked.
    span_sums : mapping of SpanSums
        Sums of the channels in each span, as far as they were computed.
    causes : mapping of str to sequence of (int, str)
        Time and cause of reported failures, by serial.
    """

    records: DayRecords
    values: InstanceValues
    plan: FeaturePlan
    at: int
    step: int
    horizon: int
    criteria: FlaggingCriteria
    version: str
    hindsight: bool = False
    span_sums: Mapping[str, SpanSums] = field(default_factory=dict)
    causes: Causes = field(default_factory=dict)

    def ranked(
        self,
        score: Float64Array,
        *,
        probability: Float64Array,
        flagged_by: npt.NDArray[np.object_],
        contributions: Contributions,
        suspected: BoolArray | None = None,
    ) -> AtRiskList:
        """Return the list ordered by score, then by serial; every array has shape (n,)."""
        row = np.argsort(-score, kind="stable")
        suspects = None if suspected is None else suspected[row]
        choice = self.criteria.choose(probability[row], suspects)
        evidence, drawn_rows = self._evidence(), row[choice.listed][:_MAX_CHARTED_GPUS].tolist()
        against = () if suspected is None else np.flatnonzero(suspected).tolist()
        reasons = explain_gpus(evidence, contributions, drawn_rows, against)
        serials, ends = self._serials(), self.records.instances.end[row]
        drawn = {i: reasons.get(i, Reasons()).channels for i in drawn_rows}
        columns = {
            "rank": np.arange(1, len(row) + 1),
            "gpu_serial": serials[row],
            **{name: texts[row] for name, texts in self._places().items()},
            "probability": probability[row],
            "flagged": choice.flagged,
            "flagged_by": flagged_by[row],
            "reasons": np.array([str(reasons.get(i, "")) for i in row.tolist()], dtype=object),
            "window_end": to_timestamps(ends),
            "model_version": np.full(len(row), self.version, dtype=object),
            "valid_until": to_timestamps(ends + self.horizon),
            "action": choice.action,
            "listed": choice.listed,
        }
        failed = self._latest_failures()
        if (marked := self._is_presumed(failed)[row]).any():
            columns["note"] = np.where(marked, NO_REPAIR, "").astype(object)
        if self.hindsight:
            columns["hindsight"] = np.ones(len(row), dtype=bool)
        return AtRiskList(
            self.at,
            pd.DataFrame(columns),
            unscored_gpus(self.records, self.plan, failed, since=self.at - self.step),
            self.criteria.share,
            self.horizon / HOUR,
            self.version,
            self.hindsight,
            {str(serials[i]): charts for i, charts in channel_charts(evidence, drawn).items()},
            choice.sentences,
            self.criteria.summary(),
            gpu_extracts(evidence, row[:MAX_TELEMETRY_GPUS].tolist()),
        )

    def _evidence(self) -> ChannelEvidence:
        fleet, timeline, instances, events = self.records
        peers = PeerComparison.from_timeline(timeline, instances, self.plan)
        measured = timeline, instances, self.values, self.plan
        return ChannelEvidence(*measured, peers, self.span_sums, events, fleet)

    def _is_presumed(self, failed: dict[int, KnownFailure]) -> BoolArray:
        """Return the GPUs whose last failure has a presumed end only."""
        presumed = [gpu for gpu, failure in failed.items() if failure.presumed]
        return np.isin(self.records.instances.gpu, presumed)

    def _latest_failures(self) -> dict[int, KnownFailure]:
        timeline = self.records.timeline
        return latest_failures(timeline.failures, timeline.serials, self.causes)

    def _serials(self) -> npt.NDArray[np.object_]:
        serials = np.array(self.records.timeline.records.serials, dtype=object)
        return np.asarray(serials[self.records.instances.gpu])

    def _places(self) -> dict[str, npt.NDArray[np.object_]]:
        """Return machine and slot of each GPU, where known."""
        places, records = {}, self.records.timeline.records
        for name in (MACHINE, SLOT):
            column = records.texts.get(name)
            if column is not None:
                texts = np.array([*column.texts, None], dtype=object)
                places[name] = texts[records.codes(name, self.records.instances.row)]
        return places


def _iso_texts(moments: pd.Series) -> pd.Series:
    """Format times; most times of a fleet are equal, so distinct ones are formatted once."""
    distinct = moments.drop_duplicates()
    texts = distinct.dt.strftime("%Y-%m-%dT%H:%M:%SZ")
    return moments.map(dict(zip(distinct, texts, strict=True)))
