"""What is shipped with forewarn may be passed on: licences of all packages, target by target."""

from __future__ import annotations

import importlib.metadata
import re

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

# Extras of the targets of deploy/Dockerfile, and of the Debian package.
TARGETS = {
    "deb": (),
    "agent": ("jobs",),
    "server": ("server", "kubernetes", "postgresql"),
    "train": ("train",),
}
PERMISSIVE = re.compile(
    r"Apache|MIT|BSD|ISC|PSF|Python Software Foundation|Zlib|0BSD|Unlicense|CC0|HPND"
)
WEAK_COPYLEFT = re.compile(r"MPL|Mozilla Public License")
UNSTATED = {"huey": "MIT", "namex": "Apache-2.0", "skops": "MIT"}  # their LICENSE files say so
LGPL = {"psycopg", "psycopg-binary"}  # only by the extra `postgresql`


def packages(extras: tuple[str, ...]) -> set[str]:
    """Return the packages that `forewarn[extras]` needs here."""
    waiting, visited = [("forewarn", extras)], set()
    while waiting:
        name, extra_names = waiting.pop()
        if (name, extra_names) in visited:
            continue
        visited.add((name, extra_names))
        for line in importlib.metadata.requires(name) or []:
            requirement = Requirement(line)
            marker = requirement.marker
            if marker is None or any(marker.evaluate({"extra": e}) for e in ("", *extra_names)):
                waiting.append((canonicalize_name(requirement.name), tuple(requirement.extras)))
    return {name for name, _ in visited}


def licence(name: str) -> str:
    metadata = importlib.metadata.metadata(name)
    classifiers = [
        c for c in metadata.get_all("Classifier", []) if c.startswith("License :: OSI Approved ::")
    ]
    expressions, texts = (metadata.get_all(key, []) for key in ("License-Expression", "License"))
    stated = [*expressions, *classifiers, *texts]
    return next((text for text in stated if text), UNSTATED.get(name, ""))


@pytest.mark.parametrize("target", TARGETS)
def test_licences_permit_redistribution(target: str) -> None:
    names = packages(TARGETS[target])
    assert len(names) > 10
    other = {
        name: licence(name)
        for name in names - LGPL
        if not PERMISSIVE.search(licence(name)) and not WEAK_COPYLEFT.search(licence(name))
    }
    strict = {name for name in names - LGPL if re.search(r"GPL|Propri", licence(name))}
    assert (other, strict) == ({}, set())
    assert LGPL.isdisjoint(names) or "postgresql" in TARGETS[target]
