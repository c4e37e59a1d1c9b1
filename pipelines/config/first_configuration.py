"""The first configuration of a site, with comments."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

__all__ = ["first_configuration"]

_HEAD = """\
# Configuration of forewarn. All other keys have their defaults, which
# `forewarn config check --config THIS_FILE` prints. Relative paths start at this file.
"""
_SITE = """
[site]
# Folder of GPU records: one row per GPU and 10 minutes.
records = "records"
# Folder of daily lists.
lists = "lists"
"""
_TAIL = """
# Columns of records that another program writes under other names, ours = theirs.
# [records]
# columns = {gpu_serial = "device", timestamp = "ts"}

# Columns of the CMDB and of tickets. Exports of NetBox and ServiceNow are recognised by themselves.
# [cmdb]
# columns = {gpu_serial = "S/N", machine_id = "Host"}
# [tickets]
# columns = {gpu_serial = "S/N", failed_at = "Opened"}

# Share of the fleet that is flagged each day, at most.
# [list]
# share = 0.003

# Xids that count as failures have a default list.
# [failures]
# presumed_after = "7d"

# `forewarn respond` only observes until a pool permits more.
# [respond]
"""


def first_configuration(
    prometheus: str,
    cmdb: str,
    repairs: str,
    missing: Mapping[str, Sequence[str]],
    existing: str = "",
) -> str:
    """Return the text of the configuration.

    Parameters
    ----------
    prometheus : str
        Address without user and password.
    cmdb, repairs : str
        Paths; "" if there is none.
    missing : mapping of str to sequence of str
        The DCGM fields that the server lacks, by record column.
    existing : str, optional
        A configuration without `[site]`, which is kept. It replaces the commented examples.
    """
    lines = [
        "# Prometheus server that scrapes dcgm-exporter.",
        f"prometheus = {_quoted(prometheus)}",
    ]
    if missing:
        lines += ["# It has no series for these columns; switch on the fields in dcgm-exporter:"]
        lines += [f"#   {column}: {', '.join(fields)}" for column, fields in missing.items()]
    lines += _optional("cmdb", cmdb, "CMDB: CSV or Parquet with `gpu_serial` or `machine_id`.")
    lines += _optional("repairs", repairs, "Repair tickets, the only evidence of a repair.")
    site = _SITE + "\n".join(lines) + "\n"
    # `[site]` comes after the existing text, whose first lines may belong to no table.
    return existing.rstrip() + "\n" + site if existing else _HEAD + site + _TAIL


def _optional(key: str, path: str, meaning: str) -> list[str]:
    line = f"{key} = {_quoted(path)}" if path else f'# {key} = "{key}.csv"'
    return [f"# {meaning}", line]


def _quoted(text: str) -> str:
    """Return a basic string of TOML, whose escapes are those of JSON."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
