"""The reference of the knowledge base: patterns of log lines, Xids, and checks of inspections."""

from __future__ import annotations

import tomllib
from importlib.resources import files

from docs.generate.markdown import escaped, table

from forewarn.features.duration import format_duration
from forewarn.features.inspection.check_table import CATEGORIES
from forewarn.features.time_units import SECOND
from forewarn.features.xid_catalogue import DEGRADED_XIDS, FATAL_ACTIONS, FATAL_XIDS, NVLINK_XIDS
from forewarn.pipelines.inspection.check_files import load_checks

__all__ = ["checks_page", "patterns_page", "xids_page"]

PATTERNS_HEAD = """# Log patterns

The knowledge base by which `forewarn diagnose run` reads the logs of a job, for people who want to
know why a line counts or who add patterns of their own with `--patterns FILE`
([format](formats.md#10-diagnosis-of-a-job)). The first pattern that matches a line decides what the
line means; patterns of a site are tried before these.

| role | meaning |
|---|---|
| `root` | The line can be where a crash began. |
| `cascade` | Other ranks write the line as a consequence. |
| `confirmation` | The line supports a cause that another line names. |
| `advice` | The line says where to look. It is no fault. |

"""
XIDS_HEAD = """# Xids

How forewarn rates the Xids of NVIDIA's driver, for people who read a list or a verdict, or who set
`[failures] xids`. The ratings come from NVIDIA's catalogue and from the practice of other tools.
Every Xid that is not on this page counts as an application error.

"""

FATAL_MEANING = (
    "The GPU, its memory, its link or its firmware does not work until it is reset or replaced. "
    "By default such an Xid is a failure."
)
DEGRADED_MEANING = "The GPU works, but hardware was repaired, was retired or is wearing out."


def patterns_page() -> str:
    """Return the page of all patterns as Markdown."""
    resource = files("forewarn.pipelines.diagnosis.parts") / "knowledge.toml"
    patterns = tomllib.loads(resource.read_text(encoding="utf-8"))["patterns"]
    rows = [
        (
            f"[`{name}`](#{name})",
            entry["role"],
            entry["scope"],
            entry["level"],
            escaped(entry["says"]),
        )
        for name, entry in patterns.items()
    ]
    parts = [PATTERNS_HEAD, table(("pattern", "role", "scope", "level", "meaning"), rows)]
    for name, entry in patterns.items():
        parts.append(f"\n## {name} {{ #{name} }}\n\n{escaped(_sentence(entry['says']))}")
        parts.append(f"**What to do:** {escaped(_sentence(entry['next']))}\n")
        if entry.get("needs_repair"):
            parts.append("The job should continue without this machine.\n")
        parts.append(f"```text\n{entry['pattern']}\n```\n")
        if examples := entry.get("examples"):
            text = "\n".join(examples)
            parts.append(f"Matches, for example:\n\n```text\n{text}\n```\n")
    return "\n".join(parts)


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


def xids_page() -> str:
    """Return the page of the Xids as Markdown."""
    fatal, degraded = (", ".join(map(str, codes)) for codes in (FATAL_XIDS, DEGRADED_XIDS))
    rows = [
        ("fatal", "3", FATAL_MEANING, fatal),
        ("degraded", "2", DEGRADED_MEANING, degraded),
        ("application", "1", "The job caused it, as far as the Xid tells.", "all others"),
    ]
    nvlink = ", ".join(map(str, NVLINK_XIDS))
    actions = " or ".join(f"`{action}`" for action in FATAL_ACTIONS)
    text = (
        f"\nXids {nvlink} are errors of NVLink 5. The driver's own word in the message, `fatal` "
        f"or `nonfatal`, decides their rating. An Xid whose message asks for {actions} of the GPU "
        "or the machine is fatal, whatever its number.\n"
    )
    return XIDS_HEAD + table(("rating", "value", "meaning", "Xids"), rows) + text


CHECKS_HEAD = """# Checks

The checks that `forewarn inspect run` ships, for people who choose or change them
([how](../how-to/inspect.md)). Their programs are not part of forewarn. Without its program a check
does not run, and says so.
"""


def checks_page() -> str:
    """Return the page of all checks of inspections as Markdown."""
    parts = [CHECKS_HEAD]
    for category in CATEGORIES:
        rows = [
            (
                f"`{name}`",
                escaped(check.description),
                ", ".join(f"`{program}`" for program in check.programs),
                ", ".join(f"`{occasion}`" for occasion in check.when),
                f"{check.repeat} x {format_duration(check.timeout / SECOND)}",
            )
            for name, check in load_checks().items()
            if check.category == category
        ]
        head = ("check", "measures", "programs", "sets", "at most")
        parts.append(f"\n## {category}\n\n{table(head, rows)}")
    return "\n".join(parts)
