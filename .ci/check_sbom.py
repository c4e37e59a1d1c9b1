"""Check that each SBOM of `deploy/sbom FOLDER` lists exactly the packages of its target.

`check_sbom.py FOLDER`, run by .ci/run in the repository. The tool that wrote them has checked them
against the schema. What a target needs is read from the packages that are installed here.
"""

from __future__ import annotations

import importlib.metadata
import json
import sys
from pathlib import Path

from packaging.utils import canonicalize_name

sys.path.insert(0, "")
from tests.test_licences import TARGETS, packages

for target, extras in TARGETS.items():
    sbom = json.loads((Path(sys.argv[1]) / f"forewarn-{target}.cdx.json").read_text())
    listed = [(canonicalize_name(item["name"]), item["version"]) for item in sbom["components"]]
    names = sorted(packages(extras) - {"forewarn"})
    expected = [(name, importlib.metadata.version(name)) for name in names]
    if sorted(listed) != expected or sbom["metadata"]["component"]["name"] != "forewarn":
        sys.exit(f"{target}: listed and expected differ by {sorted({*listed} ^ {*expected})}")
    stated = sum("licenses" in item for item in sbom["components"])
    print(f"{len(listed):4d} packages of {target}, {stated} with a licence")
