"""The navigation of the site: sections in order, and every page that is in a section's folder.

A page that a section does not name is added at its end, so a new page needs no change here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath
from typing import Any

__all__ = ["site_navigation"]

# Section -> its folder, and the groups of its pages in order.
SECTIONS: Mapping[str, tuple[str, Mapping[str, tuple[str, ...]]]] = {
    "Tutorial": ("tutorial", {"": ("first_list", "first_drain")}),
    "How-to guides": (
        "how-to",
        {
            "Collect data": (
                *("collect_records", "prometheus", "agents", "failures_and_tickets"),
                *("check_records",),
            ),
            "Find GPUs at risk": (
                *("daily_list", "backtest", "retrain_with_airflow", "mlflow_registry"),
                *("large_fleets", "run_on_dask"),
            ),
            "Watch and diagnose jobs": (
                *("fit_a_detector", "watch_jobs", "read_a_verdict", "diagnose_job"),
                *("collect_from_hung_job", "check_nodes", "extend_the_knowledge_base"),
                *("lost_time", "launch_a_job", "inspect"),
            ),
            "Respond": (
                *(
                    "respond_dry_run",
                    "connect_slurm",
                    "connect_kubernetes",
                    "write_policy",
                    "replay_a_policy",
                ),
                *(
                    "find_out_why_a_step_was_blocked",
                    "approve_and_silence",
                    "undo_by_hand",
                    "warn_jobs",
                ),
                *("report_findings", "measure_the_response", "send_messages", "answer_an_alert"),
                "watch_forewarn",
            ),
            "Operate": ("deploy", "secure_the_servers", "backup_the_ledger"),
            "Extend": ("add_a_telemetry_field", "add_a_model", "add_a_finding"),
        },
    ),
    "Explanation": (
        "explanation",
        {
            "": (
                *("prediction", "leaks", "failures", "daily_list", "detection", "diagnosis"),
                *("response_safety", "scaling", "architecture"),
            )
        },
    ),
    "Reference": (
        "reference",
        {
            "": ("formats", "cli", "configuration", "metrics"),
            "HTTP APIs": ("http/collector", "http/response"),
            "Knowledge base": ("log_patterns", "xids", "checks"),
        },
    ),
}
INNER_FOLDERS = {"reference/python": "Python API"}


def site_navigation(pages: Iterable[str]) -> list[Any]:
    """Return what `nav` of mkdocs.yml would hold for these pages.

    >>> site_navigation(["index.md", "how-to/agents.md", "how-to/new.md", "results.md"])
    [{'Home': 'index.md'}, {'How-to guides': [{'Collect data': ['how-to/agents.md']}, \
'how-to/new.md']}, {'Results': 'results.md'}]
    """
    left = dict.fromkeys(sorted(page for page in pages if page.endswith(".md")))
    nav: list[Any] = _single("Home", "index.md", left)
    for title, (folder, groups) in SECTIONS.items():
        if entries := _section(folder, groups, left):
            nav.append({title: entries})
    nav += _single("Results", "results.md", left)
    if entries := _section("notebooks", {}, left):
        nav.append({"Notebooks": entries})
    nav += _single("Glossary", "glossary.md", left)
    return nav + list(left)


def _single(title: str, page: str, left: dict[str, None]) -> list[Any]:
    return [{title: page}] if _taken(page, left) else []


def _section(
    folder: str, groups: Mapping[str, tuple[str, ...]], left: dict[str, None]
) -> list[Any]:
    entries: list[Any] = []
    for title, names in groups.items():
        paths = [f"{folder}/{name}.md" for name in names]
        named = [path for path in paths if _taken(path, left)]
        if title and named:
            entries.append({title: named})
        else:
            entries += named
    entries += _inner_folders(folder, left)
    return entries + [
        path for path in list(left) if path.startswith(f"{folder}/") and _taken(path, left)
    ]


def _inner_folders(folder: str, left: dict[str, None]) -> list[Any]:
    entries = []
    for inner, title in INNER_FOLDERS.items():
        if inner.startswith(f"{folder}/"):
            paths = [path for path in list(left) if str(PurePosixPath(path).parent) == inner]
            named = [path for path in paths if _taken(path, left)]
            entries += [{title: named}] if named else []
    return entries


def _taken(page: str, left: dict[str, None]) -> bool:
    """Remove a page from those that are left, and say whether it was among them."""
    return left.pop(page, 0) is None
