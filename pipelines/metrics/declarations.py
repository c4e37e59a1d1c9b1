"""All metrics of forewarn, by the process or job that exposes them.

No label holds a serial, a machine or a user: the number of series does not grow with the fleet.
The alert rules in `deploy/prometheus` use these names.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from forewarn.pipelines.metrics.metric import Metric, counter, gauge, histogram
from forewarn.response.policy.cause_group import CauseGroup
from forewarn.response.repair.repair_case import RepairStage
from forewarn.response.state.blocker import BlockerKind

__all__ = [
    "ACTING",
    "ACTIONS_WITHOUT_MARK",
    "BEAT_AGE",
    "BEAT_TIME",
    "BLOCKED_DECISIONS",
    "BLOCKED_INCIDENTS",
    "CLOCK_OFFSET",
    "COLLECTOR_AHEAD_HOSTS",
    "COLLECTOR_CLOCK_SKEW",
    "COLLECTOR_INBOX_AGE",
    "COLLECTOR_INBOX_FILES",
    "COLLECTOR_LANDING_AGE",
    "COLLECTOR_QUARANTINED",
    "COLLECTOR_REFUSED",
    "COLLECTOR_ROWS",
    "COLLECTOR_TOO_OLD",
    "COMPACTED_DATES",
    "DECISIONS",
    "DECISION_DELAY",
    "FATAL_IN_SERVICE",
    "FINDINGS",
    "FLEET_GPUS",
    "GPUS_OUT",
    "INGESTED_EVENTS",
    "INGESTED_FAILURES",
    "INGESTED_READINGS",
    "ISOLATIONS",
    "ISOLATION_DELAY",
    "JOB_SUCCESS_TIME",
    "LEDGER_UP",
    "LIMIT_USED",
    "LIST_EXPECTED_FAILURES",
    "LIST_FLAGGED",
    "LIST_MODEL_TIME",
    "LIST_RECORD_TIME",
    "LIST_TIME",
    "MACHINES",
    "MACHINES_OUT",
    "MARKS_WITHOUT_ACTION",
    "MESSAGE_AGE",
    "OPEN_ACTIONS",
    "OPEN_ACTION_AGE",
    "OPEN_INCIDENTS",
    "OUTCOMES",
    "OVERRIDES",
    "PERSON_WAIT",
    "POOL_MODE",
    "REFUSED",
    "REPAIR_AGE",
    "REPAIR_CASES",
    "REPEAT_OFFENDERS",
    "RETRAIN_PROMOTED",
    "RETRAIN_TIME",
    "REVIEW_EXPECTED",
    "REVIEW_FLAGGED",
    "REVIEW_INTERCEPT",
    "REVIEW_LOWER",
    "REVIEW_OBSERVED",
    "REVIEW_PRECISION",
    "REVIEW_RECALL",
    "REVIEW_SLOPE",
    "REVIEW_UPPER",
    "SOURCES",
]

_STATUSES: Final = tuple(
    map(str, (400, 401, 403, 404, 405, 408, 409, 413, 415, 422, 429, 500, 503))
)
_RULINGS: Final = ("act", "propose", "observe", "hold")
_BLOCKERS: Final = tuple(map(str, BlockerKind))
_CAUSES: Final = tuple(map(str, CauseGroup))
_OPEN_STATES: Final = ("intended", "sent", "holding", "drained", "releasing")
_STEPS: Final = ("tell", "avoid", "drain", "check", "reset", "restart", "replace")

_STAGES = tuple(stage.value for stage in RepairStage if stage is not RepairStage.RETURNED)

# --- respond --------------------------------------------------------------------------------------

LEDGER_UP: Final = gauge("forewarn_respond_ledger_up", "1 if the ledger answers.")
ACTING: Final = gauge(
    "forewarn_respond_acting", "1 if the kill switch permits actions, 0 if it is on."
)
BEAT_AGE: Final = gauge(
    "forewarn_respond_beat_age_seconds",
    "Age of the last round of the loop and of the last list; +Inf if there was none.",
    beat=("loop", "list"),
)
BEAT_TIME: Final = gauge(
    "forewarn_respond_beat_time_seconds",
    "Time of the last round of the loop and of the last list, seconds since 1970 UTC.",
    beat=("loop", "list"),
)
CLOCK_OFFSET: Final = gauge(
    "forewarn_respond_clock_offset_seconds",
    "How far the clock of the responder is ahead of another one, in the last round.",
    reference=("scheduler", "database"),
)
FINDINGS: Final = counter(
    "forewarn_respond_findings", "Findings recorded over the API.", known=("no", "yes")
)
OPEN_INCIDENTS: Final = gauge(
    "forewarn_respond_open_incidents",
    "Open incidents, by their last ruling.",
    ruling=(*_RULINGS, "none"),
)
DECISIONS: Final = counter(
    "forewarn_respond_decisions", "Decisions in the ledger, by ruling.", ruling=_RULINGS
)
DECISION_DELAY: Final = histogram(
    "forewarn_respond_decision_delay_seconds",
    "Time from the first finding of an incident in the ledger to the first decision.",
    (10.0, 60.0, 300.0, 900.0, 3600.0, 14400.0, 86400.0),
)
BLOCKED_DECISIONS: Final = counter(
    "forewarn_respond_blocked_decisions",
    "New decisions of this process that something blocks: a limit by its name, an interlock, "
    "another reason.",
    ruling=("propose", "observe", "hold"),
    blocked_by=_BLOCKERS,
)
BLOCKED_INCIDENTS: Final = gauge(
    "forewarn_respond_blocked_incidents",
    "Open incidents by what blocked their step in the last round.",
    blocked_by=_BLOCKERS,
)
OPEN_ACTIONS: Final = gauge(
    "forewarn_respond_open_actions",
    "Actions that have not ended.",
    state=_OPEN_STATES,
    step=_STEPS[1:],
)
OPEN_ACTION_AGE: Final = gauge(
    "forewarn_respond_oldest_action_seconds",
    "Longest time that an action has been in its state.",
    state=_OPEN_STATES,
    step=_STEPS[1:],
)
ISOLATIONS: Final = counter(
    "forewarn_respond_isolations",
    "Machines that forewarn has asked the scheduler to take out of service, by who decided.",
    by=("forewarn", "person"),
    pool=(),
)
ISOLATION_DELAY: Final = histogram(
    "forewarn_respond_isolation_delay_seconds",
    "Time from the first finding of an incident in the ledger to its isolation.",
    (60.0, 300.0, 900.0, 1800.0, 3600.0, 14400.0, 43200.0, 86400.0),
    by=("forewarn", "person"),
    pool=(),
)
OVERRIDES: Final = counter(
    "forewarn_respond_overrides",
    "Actions that a manual change undid or replaced.",
    cause=_CAUSES,
)
OUTCOMES: Final = gauge(
    "forewarn_respond_outcomes",
    "Incidents by their newest outcome, and by what happened to the machine: left in service as "
    "part of the holdout, isolated, or in service for another reason.",
    outcome=("confirmed", "not_confirmed", "unknown"),
    fate=("holdout", "isolated", "in_service"),
)
POOL_MODE: Final = gauge(
    "forewarn_respond_pool_mode",
    "1 for the mode of a pool.",
    mode=("observe", "propose", "act"),
    pool=(),
)
MACHINES: Final = gauge(
    "forewarn_respond_machines",
    "GPU machines of a pool, and those of them that are out of service for any reason.",
    state=("all", "out"),
    pool=(),
)
MACHINES_OUT: Final = gauge(
    "forewarn_respond_machines_out",
    "GPU machines out of service, by who took them out.",
    owner=("forewarn", "other"),
    pool=(),
)
GPUS_OUT: Final = gauge(
    "forewarn_respond_gpus_out",
    "GPUs of the machines out of service, by what forewarn took them out for, or `external`; the "
    "mean over a time gives lost GPU-hours.",
    cause=(*_CAUSES, "external"),
    pool=(),
)
LIMIT_USED: Final = gauge(
    "forewarn_respond_limit_used_ratio",
    "Used part of a limit: 1 blocks the next drain, +Inf permits none. `predictions` is their half "
    "of `fleet_rate`.",
    limit=("share", "fleet_rate", "predictions"),
    pool=(),
)
FATAL_IN_SERVICE: Final = gauge(
    "forewarn_respond_fatal_machines_in_service",
    "Machines with certain damage that take jobs, by what blocks the step: a limit or another "
    "action (hold), an approval (propose), the mode or an interlock (observe), nothing (act).",
    blocked_by=_RULINGS,
)
PERSON_WAIT: Final = gauge(
    "forewarn_respond_person_wait_seconds",
    "Longest time that a step waits for a person: for an approval, or for a repair after a drain.",
    pool=(),
    step=_STEPS,
)
MARKS_WITHOUT_ACTION: Final = gauge(
    "forewarn_respond_marks_without_action",
    "Machines with a mark of forewarn in the scheduler that no action in the ledger explains.",
)
ACTIONS_WITHOUT_MARK: Final = gauge(
    "forewarn_respond_actions_without_mark",
    "Drains that hold according to the ledger, without their mark in the scheduler.",
)
MESSAGE_AGE: Final = gauge(
    "forewarn_message_oldest_unsent_seconds",
    "Age of the oldest message that a receiver should have accepted by now; 0 if there is none.",
    receiver=(),
)
REFUSED: Final = counter(
    "forewarn_respond_refused_requests", "Requests refused, by HTTP status.", status=_STATUSES
)

# --- collect --------------------------------------------------------------------------------------

COLLECTOR_ROWS: Final = counter("forewarn_collector_rows", "Rows accepted and stored on disk.")
COLLECTOR_TOO_OLD: Final = counter(
    "forewarn_collector_too_old_rows", "Rows too old for records, moved aside."
)
COLLECTOR_CLOCK_SKEW: Final = gauge(
    "forewarn_collector_clock_skew_seconds",
    "Largest clock skew of a host whose batches were refused within the last hour.",
)
COLLECTOR_AHEAD_HOSTS: Final = gauge(
    "forewarn_collector_hosts_ahead",
    "Hosts whose batches were refused within the last hour because of clock skew.",
)
COLLECTOR_LANDING_AGE: Final = gauge(
    "forewarn_collector_landing_age_seconds", "Time since the last successful landing."
)
COLLECTOR_INBOX_AGE: Final = gauge(
    "forewarn_collector_inbox_age_seconds", "Age of the oldest batch that has not landed."
)
COLLECTOR_INBOX_FILES: Final = gauge(
    "forewarn_collector_inbox_files", "Batches that have not landed."
)
COLLECTOR_QUARANTINED: Final = gauge("forewarn_collector_quarantined_files", "Files in quarantine.")
COLLECTOR_REFUSED: Final = counter(
    "forewarn_collector_refused_requests", "Requests refused, by HTTP status.", status=_STATUSES
)

# --- jobs that end --------------------------------------------------------------------------------

JOB_SUCCESS_TIME: Final = gauge(
    "forewarn_job_success_time_seconds",
    "When a job last ended without an error, seconds since 1970 UTC.",
    job=("score", "review", "retrain", "ingest", "compact", "repairs"),
)
LIST_TIME: Final = gauge(
    "forewarn_list_time_seconds", "Time of the newest at-risk list, seconds since 1970 UTC."
)
LIST_RECORD_TIME: Final = gauge(
    "forewarn_list_record_time_seconds",
    "Time of the newest record of a scored GPU in the list, seconds since 1970 UTC.",
)
LIST_MODEL_TIME: Final = gauge(
    "forewarn_list_model_time_seconds",
    "Time as of which the model of the list was trained, seconds since 1970 UTC; absent for rules.",
)
LIST_FLAGGED: Final = gauge("forewarn_list_flagged_gpus", "GPUs flagged on the newest list.")
LIST_EXPECTED_FAILURES: Final = gauge(
    "forewarn_list_expected_failures",
    "Failures expected within the horizon: the sum of all probabilities; absent for rules.",
)
FLEET_GPUS: Final = gauge(
    "forewarn_fleet_gpus",
    "GPUs as the newest list counts them: all, scored, blind (their records stopped), "
    "failed_without_end (failed, and no repair is known), unscored (all others left out).",
    state=("all", "scored", "blind", "failed_without_end", "unscored"),
)
REVIEW_FLAGGED: Final = gauge(
    "forewarn_review_flagged", "Flags on the reviewed lists whose horizon is over."
)
REVIEW_OBSERVED: Final = gauge(
    "forewarn_review_failures_observed", "Failures within the horizon of those flags."
)
REVIEW_EXPECTED: Final = gauge(
    "forewarn_review_failures_expected", "Failures expected by the probabilities of those flags."
)
REVIEW_LOWER: Final = gauge(
    "forewarn_review_failures_observed_lower_expected_ratio",
    "Lower end of the 90 % interval of observed failures, divided by the expected ones.",
)
REVIEW_UPPER: Final = gauge(
    "forewarn_review_failures_observed_upper_expected_ratio",
    "Upper end of the 90 % interval of observed failures, divided by the expected ones.",
)
REVIEW_PRECISION: Final = gauge(
    "forewarn_review_precision_ratio", "Share of the flags that a failure followed."
)
REVIEW_RECALL: Final = gauge(
    "forewarn_review_recall_ratio", "Share of the failures that a flag preceded."
)
REVIEW_SLOPE: Final = gauge(
    "forewarn_review_calibration_slope",
    "Slope of the outcomes of all scored GPUs on the log odds of their probabilities; 1 is right.",
)
REVIEW_INTERCEPT: Final = gauge(
    "forewarn_review_calibration_intercept",
    "Intercept of the same fit; 0 is right, below 0 with a slope of 1 the probabilities are too "
    "high.",
)
RETRAIN_TIME: Final = gauge(
    "forewarn_retrain_time_seconds", "Time as of which the last challenger was trained."
)
RETRAIN_PROMOTED: Final = gauge(
    "forewarn_retrain_promoted", "1 if the last challenger became the champion, 0 if refused."
)
INGESTED_READINGS: Final = gauge(
    "forewarn_ingest_new_readings", "New readings of the last ingestion."
)
INGESTED_EVENTS: Final = gauge("forewarn_ingest_new_events", "New events of the last ingestion.")
INGESTED_FAILURES: Final = gauge(
    "forewarn_ingest_known_failures", "Failures known after the last ingestion."
)
COMPACTED_DATES: Final = gauge(
    "forewarn_compact_dates", "Dates that the last run of `compact` rewrote."
)

REPAIR_CASES: Final = gauge(
    "forewarn_repair_cases", "Machines in repair, by the stage they have reached.", stage=_STAGES
)
REPAIR_AGE: Final = gauge(
    "forewarn_repair_oldest_stage_seconds",
    "How long the oldest case has been in each stage, 0 without one.",
    stage=_STAGES,
)
REPEAT_OFFENDERS: Final = gauge(
    "forewarn_repair_repeat_offenders",
    "Machines, slots and serials with three incidents in 28 days, or two after a return.",
    kind=("machine", "slot", "serial"),
)

SOURCES: Final[Mapping[str, tuple[Metric, ...]]] = {
    "respond": (
        *(
            LEDGER_UP,
            ACTING,
            BEAT_AGE,
            BEAT_TIME,
            CLOCK_OFFSET,
            FINDINGS,
            OPEN_INCIDENTS,
            DECISIONS,
        ),
        *(DECISION_DELAY, BLOCKED_DECISIONS, BLOCKED_INCIDENTS, OPEN_ACTION_AGE, POOL_MODE),
        *(OPEN_ACTIONS, ISOLATIONS, ISOLATION_DELAY, OVERRIDES, OUTCOMES, MACHINES),
        *(MACHINES_OUT, GPUS_OUT, LIMIT_USED, FATAL_IN_SERVICE, PERSON_WAIT),
        *(MARKS_WITHOUT_ACTION, ACTIONS_WITHOUT_MARK, MESSAGE_AGE, REFUSED),
    ),
    "collect": (
        *(COLLECTOR_ROWS, COLLECTOR_TOO_OLD, COLLECTOR_CLOCK_SKEW, COLLECTOR_AHEAD_HOSTS),
        *(COLLECTOR_LANDING_AGE, COLLECTOR_INBOX_AGE, COLLECTOR_INBOX_FILES),
        *(COLLECTOR_QUARANTINED, COLLECTOR_REFUSED),
    ),
    "score": (
        *(JOB_SUCCESS_TIME, LIST_TIME, LIST_RECORD_TIME, LIST_MODEL_TIME, LIST_FLAGGED),
        *(LIST_EXPECTED_FAILURES, FLEET_GPUS),
    ),
    "review": (
        *(JOB_SUCCESS_TIME, REVIEW_FLAGGED, REVIEW_OBSERVED, REVIEW_EXPECTED, REVIEW_LOWER),
        *(REVIEW_UPPER, REVIEW_PRECISION, REVIEW_RECALL, REVIEW_SLOPE, REVIEW_INTERCEPT),
    ),
    "retrain": (JOB_SUCCESS_TIME, RETRAIN_TIME, RETRAIN_PROMOTED),
    "ingest": (JOB_SUCCESS_TIME, INGESTED_READINGS, INGESTED_EVENTS, INGESTED_FAILURES),
    "compact": (JOB_SUCCESS_TIME, COMPACTED_DATES),
    "repairs": (JOB_SUCCESS_TIME, REPAIR_CASES, REPAIR_AGE, REPEAT_OFFENDERS),
}
"""Metrics of each source: two servers, and the jobs by their command."""
