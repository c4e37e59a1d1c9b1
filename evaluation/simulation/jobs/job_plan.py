"""The drawn plan of a simulated job: its fault, and how it runs without one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from forewarn.evaluation.simulation.jobs.rank_layout import RankLayout, draw_rank_layout

__all__ = ["JITTERS", "JOB_FAULTS", "TIMEOUT_SECONDS", "JobPlan", "draw_plan"]

_MAX_PICKLED_RANKS = 128  # ranks; writing a thousand pickles takes minutes

# Each fault, and the expected kind of the diagnosis.
JOB_FAULTS = {
    "loader": "hang",
    "machine": "hang",
    "collective": "hang",
    "deadlock": "hang",
    "sigstop": "hang",
    "dstate": "hang",
    "sigkill": "crash",
    "exception": "crash",
    "slow": "slow",
    "jitter": "jitter",
    "none": "none",
    "timeout": "crash",
}
TIMEOUT_SECONDS = 600.0  # of collectives; PyTorch's own
JITTERS = ("gc", "lock", "memory", "loader", "checkpoint", "neighbour")


@dataclass(frozen=True, slots=True)
class JobPlan:
    """A job before it runs; times in seconds from its start.

    Attributes
    ----------
    layout : RankLayout
    fault : str
        One of `JOB_FAULTS`.
    rank : int
        The faulty rank; unused with `deadlock` and `none`.
    since : float
        Start of the fault.
    end : float
        Time at which the folder is written.
    step : float
        Seconds of computation per step.
    noise : float
        Spread of the step time, as a share.
    compiling : float
        Additional seconds of the first step.
    checkpoint : tuple of (int, float)
        Steps between checkpoints, and their duration in seconds.
    is_silent : bool
        Checkpoints are not mentioned in the logs.
    share : float
        Time that the slow rank loses, or that a pause takes, as a share of a step.
    cause : str
        Of jitter: one of `JITTERS`; of a slow rank: `cpu`, `calls` or `gpu`.
    is_gloo : bool
        The collectives are gloo's; otherwise NCCL's.
    is_pickled : bool
    missing : float
        Share of dumps that are missing, empty or truncated.
    skew : tuple of float
        Clock offset of each machine, seconds.
    cadence : float
        Seconds between metric samples.
    shows_work : bool
        With `machine`: its GPUs stay busy without progress; otherwise they are idle.
    saves_in_d : bool
        Ranks that write a checkpoint are in state D throughout.
    seed : int
    """

    layout: RankLayout
    fault: str
    rank: int
    since: float
    end: float
    step: float
    noise: float
    compiling: float
    checkpoint: tuple[int, float]
    is_silent: bool
    share: float
    cause: str
    is_gloo: bool
    is_pickled: bool
    missing: float
    skew: tuple[float, ...]
    cadence: float
    shows_work: bool
    saves_in_d: bool
    seed: int

    @property
    def kind(self) -> str:
        """Kind that the diagnosis should report."""
        return JOB_FAULTS[self.fault]

    @property
    def has_culprit(self) -> bool:
        """Whether the diagnosis should identify a rank or a machine."""
        return self.fault not in ("deadlock", "none")

    def loss(self) -> tuple[float, float]:
        """Return the seconds that the rank loses until `end`, in total and as a share of a step."""
        if self.kind in ("hang", "crash"):
            return self.end - self.since, 1.0
        return 0.0, self.share if self.kind in ("slow", "jitter") else 0.0

    def truth(self) -> dict[str, object]:
        """Return the ground truth that is known before the job runs."""
        seconds, share = self.loss()
        return {
            "fault": self.fault,
            "kind": self.kind,
            "rank": self.rank if self.has_culprit else None,
            "machine": self.layout.machine(self.rank) if self.has_culprit else None,
            "since_seconds": None if self.fault == "none" else round(self.since, 3),
            "seconds_lost": round(seconds, 3),
            "share_of_step": round(share, 4),
            "cause": self.cause if self.kind in ("slow", "jitter") else None,
        }


def draw_plan(n_ranks: int, fault: str, seed: int) -> JobPlan:
    """Draw a job.

    Parameters
    ----------
    n_ranks : int
        A multiple of 4.
    fault : str
        One of `JOB_FAULTS`.
    seed : int

    Raises
    ------
    ValueError
        If the fault is unknown, or the number of ranks is invalid.
    """
    if fault not in JOB_FAULTS:
        raise ValueError(f"`fault` must be one of {', '.join(JOB_FAULTS)}, got {fault!r}.")
    rng = np.random.default_rng([seed, n_ranks, list(JOB_FAULTS).index(fault)])
    layout = draw_rank_layout(n_ranks, rng)
    step = float(rng.uniform(2.0, 6.0))
    compiling = float(rng.choice([rng.uniform(5, 40), rng.uniform(100, 500)]))
    since = compiling + float(rng.uniform(60, 120)) * step
    return JobPlan(
        layout=layout,
        fault=fault,
        rank=int(rng.integers(layout.n_ranks)),
        since=since,
        end=_draw_end(since, fault, rng),
        step=step,
        noise=float(rng.uniform(0.003, 0.02)),
        compiling=compiling,
        checkpoint=(int(rng.integers(25, 80)), float(rng.uniform(10, 200))),
        is_silent=bool(rng.random() < 0.5),
        share=float(rng.uniform(0.03, 0.5) if fault == "slow" else rng.uniform(0.5, 2.0)),
        cause=_draw_cause(fault, rng),
        is_gloo=bool(rng.random() < 0.3),
        is_pickled=bool(rng.random() < 0.5) and n_ranks <= _MAX_PICKLED_RANKS,
        missing=float(rng.choice([0.0, rng.uniform(0.0, 0.15)])),
        skew=_draw_skew(layout, rng),
        cadence=float(rng.choice([5.0, 10.0, 15.0, 30.0])),
        shows_work=bool(rng.random() < 0.5),
        saves_in_d=bool(rng.random() < 0.3),
        seed=seed,
    )


def _draw_end(since: float, fault: str, rng: np.random.Generator) -> float:
    """Return the time of the diagnosis: before timeouts end a hang, soon after a crash."""
    if JOB_FAULTS[fault] == "hang":
        return since + float(rng.uniform(150, 900))
    if fault == "timeout":
        since += TIMEOUT_SECONDS
    if JOB_FAULTS[fault] == "crash":
        return since + float(rng.uniform(40, 120))
    return since + float(rng.uniform(300, 900))


def _draw_cause(fault: str, rng: np.random.Generator) -> str:
    return str(rng.choice(JITTERS if fault == "jitter" else ("cpu", "calls", "gpu")))


def _draw_skew(layout: RankLayout, rng: np.random.Generator) -> tuple[float, ...]:
    """Return clock offsets: within milliseconds with NTP, or arbitrary without."""
    n_machines = -(-layout.n_ranks // layout.per_machine)
    spread = float(rng.choice([0.002, 0.02, 1.0]))
    return tuple(float(value) for value in rng.normal(0.0, spread, n_machines))
