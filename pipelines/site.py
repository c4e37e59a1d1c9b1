"""What the scheduled DAGs do, one function a task: the commands, with paths from one file.

Everything here takes the path of a configuration and plain values, and returns plain values, so
that a scheduler passes nothing else on.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from forewarn.features.records import DAY, TIMESTAMP
from forewarn.pipelines.job import open_job
from forewarn.pipelines.moments import iso, parse_moment
from forewarn.pipelines.settings import Settings, load_settings

if TYPE_CHECKING:
    from forewarn.pipelines.at_risk import AtRiskList

__all__ = [
    "Site",
    "complete_days",
    "ingest_site",
    "lengths_of",
    "retrain_site",
    "review_site",
    "score_site",
    "train_length",
]

_REVIEWED_AFTER = 7  # days: every alert of a list has expired by then


@dataclass(frozen=True, slots=True)
class Site:
    """A configuration whose paths are absolute.

    Attributes
    ----------
    settings : Settings
    folder : Path
        Where the configuration lies.
    """

    settings: Settings
    folder: Path

    @classmethod
    def of(cls, config: str) -> Site:
        """Read a configuration.

        Raises
        ------
        SettingsError
            If it cannot be used.
        """
        path = Path(config).resolve()
        settings = load_settings(path)
        store = settings.registry.store
        if "://" not in store:
            table = settings.registry.model_copy(update={"store": str(path.parent / store)})
            settings = settings.model_copy(update={"registry": table})
        return cls(settings, path.parent)

    @property
    def records(self) -> Path:
        """Folder of records."""
        return self.folder / self.settings.site.records

    @property
    def lists(self) -> Path:
        """Folder of daily lists."""
        return self.folder / self.settings.site.lists

    def file(self, name: str) -> Path | None:
        """Return an optional path of the site."""
        text: str = getattr(self.settings.site, name)
        return self.folder / text if text else None


def ingest_site(config: str, now: str) -> str | None:
    """Bring in what is new; return the newest complete day of records, None if there is none.

    Parameters
    ----------
    config : str
    now : str
        Up to when Prometheus is asked.
    """
    site, end = Site.of(config), parse_moment(now)
    table = site.settings.site
    if table.raw or table.prometheus or table.repairs:
        _ingest(site, end)
    days = complete_days(site.records, site.settings.records.interval)
    return days[-1] if days else None


def _ingest(site: Site, end: int) -> None:
    from forewarn.pipelines.ingest import ingest_raw, open_landing, read_tickets
    from forewarn.pipelines.prometheus import Server, pull

    landing = open_landing(site.settings, site.records, site.file("cmdb"))
    raw, repairs = site.file("raw"), site.file("repairs")
    tickets = None if repairs is None else read_tickets(repairs)[0]
    if raw is not None:
        ingest_raw(raw, landing, tickets)
    elif tickets is not None:
        landing.land_tickets(tickets)
    address = site.settings.site.prometheus
    if address:
        with closing(Server.from_environment(address)) as server:
            pull(server, landing, start=None, end=end)


def complete_days(records: Path, interval: int) -> list[str]:
    """Return the days that are over: their last interval, or a later day, has a record."""
    from forewarn.pipelines.store import open_parquet

    dates = sorted(path.name.removeprefix("date=") for path in records.glob("date=*"))
    if not dates:
        return []
    newest = 0
    for path in (records / f"date={dates[-1]}").glob("[!._]*.parquet"):
        column = open_parquet(path).read(columns=[TIMESTAMP])[TIMESTAMP].to_pandas()
        newest = max(newest, int(column.max().value))
    midnight = parse_moment(dates[-1]) + DAY
    return dates if newest >= midnight - interval else dates[:-1]


def train_length(config: str, at: str, length: int) -> str:
    """Train one length as of the start of the last finished window, for `retrain_site` to recall.

    Parameters
    ----------
    config, at : str
    length : int
        Nanoseconds.
    """
    from forewarn.pipelines.recipes import train_recipe
    from forewarn.pipelines.registry import Registry

    site = Site.of(config)
    job = open_job(site.records, site.settings)
    registry = Registry(site.settings.registry, create=True)
    return train_recipe(job, parse_moment(at), length, registry)


def retrain_site(config: str, at: str) -> dict[str, Any]:
    """Retrain as `forewarn retrain` does and return what came of it."""
    from forewarn.pipelines.registry import Registry
    from forewarn.pipelines.retrain import retrain

    site = Site.of(config)
    job = open_job(site.records, site.settings)
    return retrain(job, parse_moment(at), Registry(site.settings.registry, create=True)).as_dict()


def score_site(config: str, day: str) -> str:
    """Write the list of a complete day, and return its folder.

    The champion makes it; of a day before the champion was trained, the newest one of that time,
    since a list of somebody who has seen what followed is no forecast. While there is none, the
    built-in rules make it, and that is an alert.

    Parameters
    ----------
    config : str
    day : str
        The list is made as of the midnight that ends it.
    """
    site = Site.of(config)
    return str(_list_as_of(site, parse_moment(day) + DAY).write(site.lists))


def _list_as_of(site: Site, at: int) -> AtRiskList:
    from forewarn.pipelines.alerts import alert
    from forewarn.pipelines.registry import Registry
    from forewarn.pipelines.score import score_with, score_with_rules

    registry = Registry(site.settings.registry, create=True)
    with registry.in_one_line():
        version = registry.champion_for(at)
    if version is None:
        why = f"no champion was trained by {iso(at)}"
        alert("built-in rules", f"{why}: they make the list, without probabilities")
        return score_with_rules(site.settings, site.records, at)
    predictor = registry.load_version(version)
    return score_with(predictor, registry.uri_of(version), site.records, at)


def review_site(config: str, day: str) -> dict[str, Any] | None:
    """Judge the lists up to a week before a day; None while none is that old."""
    from forewarn.evaluation.review import review_figures
    from forewarn.pipelines.review import review_lists

    site = Site.of(config)
    failures = site.records / "failures.parquet"
    until = parse_moment(day) - (_REVIEWED_AFTER - 1) * DAY
    old = [p for p in site.lists.glob("date=*") if parse_moment(p.name[5:]) <= until]
    if not old or not failures.exists():
        return None
    figures = review_figures(review_lists(site.lists, failures, until))
    _log_review(site, day, figures)
    return figures


def _log_review(site: Site, day: str, figures: dict[str, Any]) -> None:
    """Keep in MLflow what the lists came to, now that their labels are known."""
    from forewarn.pipelines.registry import Registry

    registry = Registry(site.settings.registry, create=True)
    tags = {"forewarn.kind": "review", "forewarn.day": day}
    if registry.find(tags):
        return
    with registry.run(f"review {day}", tags) as run:
        names = ("precision", "random_precision", "recall", "flagged", "hits", "failures")
        registry.log(run, metrics={f"lists/{name}": figures[name] for name in names})


def lengths_of(config: str) -> list[int]:
    """Return the training lengths of a configuration, in nanoseconds."""
    return sorted(Site.of(config).settings.training.lengths)
