"""Columns of tables that other systems export: which of theirs is which of ours."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from forewarn.features.records.column_names import OUR_NAMES, ColumnNames

__all__ = ["CMDB_EXPORTS", "TICKET_EXPORTS", "Export", "ExportReader", "NamedHeader"]

AUTO, NONE = "auto", "none"


@dataclass(frozen=True, slots=True)
class Export:
    """A kind of table that a system exports.

    Attributes
    ----------
    system : str
        Name of the preset.
    content : str
        For messages.
    needed : tuple of tuple of str
        Headers by which it is recognised: one of each group.
    columns : mapping of str to tuple of str
        Our columns, and the headers that hold them, the best first.
    """

    system: str
    content: str
    needed: tuple[tuple[str, ...], ...]
    columns: Mapping[str, tuple[str, ...]]

    def fits(self, headers: Collection[str]) -> bool:
        """Tell whether a table with these simplified headers is of this kind."""
        return all(any(name in headers for name in group) for group in self.needed)


# NetBox writes field names where a table can be imported again (`serial`, `device_role`), and
# titles where the present view is exported (`Serial number`, `Role`).
_SERIAL_NUMBER = ("serial_number", "serial")
_EXPIRES = ("warranty_expiration", "warranty_expires", "warranty_end", "cf_warranty_expiration")
CMDB_EXPORTS: Final = (
    Export(
        "netbox",
        "modules or inventory items",
        (("device",), _SERIAL_NUMBER),
        MappingProxyType(
            {
                "gpu_serial": _SERIAL_NUMBER,
                "machine_id": ("device",),
                "rack": ("rack", "rack_name"),
                "data_center": ("site",),
                "expiration_date": _EXPIRES,
            }
        ),
    ),
    Export(
        "netbox",
        "devices",
        (("name",), ("site",), ("rack", "rack_name", "role", "device_role", "device_type")),
        MappingProxyType(
            {
                "machine_id": ("name",),
                "rack": ("rack", "rack_name"),
                "data_center": ("site",),
                "expiration_date": _EXPIRES,
            }
        ),
    ),
    Export(
        "servicenow",
        "parts",
        (("serial_number",), ("parent", "installed_on")),
        MappingProxyType(
            {
                "gpu_serial": ("serial_number",),
                "machine_id": ("installed_on", "parent"),
                "rack": ("u_rack", "rack"),
                "data_center": ("location",),
                "expiration_date": _EXPIRES,
            }
        ),
    ),
    Export(
        "servicenow",
        "servers",
        (
            ("name", "host_name", "ci"),
            ("sys_class_name", "class", "model_id", "install_status", "asset_tag"),
        ),
        MappingProxyType(
            {
                "machine_id": ("name", "host_name", "ci"),
                "rack": ("u_rack", "rack"),
                "data_center": ("location",),
                "expiration_date": _EXPIRES,
            }
        ),
    ),
)
"""Exports of inventories. Those without `gpu_serial` describe machines."""

_GPU_SERIAL = (
    *("u_gpu_serial", "u_gpu_serial_number", "gpu_serial_number", "cmdb_ci_serial_number"),
    *("configuration_item_serial_number", "u_serial_number", "serial_number"),
)
TICKET_EXPORTS: Final = (
    Export(
        "servicenow",
        "incidents",
        (("opened_at", "opened", "sys_created_on", "created"), _GPU_SERIAL),
        MappingProxyType(
            {
                "gpu_serial": _GPU_SERIAL,
                "failed_at": ("opened_at", "opened", "sys_created_on", "created"),
                "repaired_at": ("resolved_at", "resolved", "closed_at", "closed"),
                "cause": ("close_code", "resolution_code", "short_description"),
                "known_at": ("sys_created_on", "created"),
            }
        ),
    ),
)
"""Exports of tickets."""


@dataclass(frozen=True, slots=True)
class NamedHeader:
    """The header of a table by our names.

    Attributes
    ----------
    names : tuple of (str, str)
        The columns to keep: their name and ours.
    note : str
        How the table was understood; "" if it has our names.
    """

    names: tuple[tuple[str, str], ...]
    note: str = ""


@dataclass(frozen=True, slots=True)
class ExportReader:
    """Finds our columns in the header of an export.

    Attributes
    ----------
    exports : tuple of Export
    keys : tuple of str
        Our columns of which a table needs one.
    preset : str
        "auto" to recognise an export by its header, "none", or a system.
    columns : ColumnNames
        Names that the site configured. They take precedence.
    """

    exports: tuple[Export, ...]
    keys: tuple[str, ...]
    preset: str = AUTO
    columns: ColumnNames = OUR_NAMES

    def named(self, header: Sequence[str]) -> NamedHeader:
        """Return the columns of a table to keep, by our names.

        Raises
        ------
        ValueError
            If a configured column is missing, or the table is no export of the preset.
        """
        for ours, theirs in self.columns.absent(header):
            raise ValueError(f"column `{theirs}` is missing, which `columns` reads as `{ours}`")
        configured = dict(zip(header, self.columns.renamed(header), strict=True))
        if self.preset == NONE or (self.preset == AUTO and set(self.keys) & {*configured.values()}):
            return NamedHeader(tuple(configured.items()))
        export = self._recognised(header)
        if export is None:
            return NamedHeader(tuple(configured.items()))
        return _of_export(export, {theirs: ours for ours, theirs in self.columns.pairs}, header)

    def _recognised(self, header: Sequence[str]) -> Export | None:
        headers = {_simplified(name) for name in header}
        of_preset = [e for e in self.exports if self.preset in (AUTO, e.system)]
        export = next((e for e in of_preset if e.fits(headers)), None)
        if export is None and self.preset != AUTO:
            expected = " or ".join(_described(e) for e in of_preset)
            raise ValueError(f"is no {self.preset} export, expected columns {expected}")
        return export


def _of_export(export: Export, configured: Mapping[str, str], header: Sequence[str]) -> NamedHeader:
    """Return the columns of an export; configured names take precedence, others are dropped."""
    by_headers = {_simplified(name): name for name in reversed(header)}
    names = dict(configured)
    for ours, headers in export.columns.items():
        theirs = next((by_headers[name] for name in headers if name in by_headers), None)
        if theirs is not None and ours not in names.values() and theirs not in names:
            names[theirs] = ours
    pairs = ", ".join(f"`{theirs}` is {ours}" for theirs, ours in names.items())
    note = f"read as a {export.system} export of {export.content}: {pairs}"
    return NamedHeader(tuple(names.items()), note)


def _described(export: Export) -> str:
    return " and ".join(f"`{group[0]}`" for group in export.needed)


def _simplified(name: str) -> str:
    """Return a header without case and punctuation.

    Examples
    --------
    >>> _simplified("Serial number"), _simplified("cmdb_ci.serial_number")
    ('serial_number', 'cmdb_ci_serial_number')
    """
    return re.sub(r"[^a-z0-9]+", "_", name.casefold()).strip("_")
