"""MkDocs calls these while it builds the site: they add generated pages and the navigation."""

from __future__ import annotations

import sys
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import Files

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))  # MkDocs loads this file by its path

from docs.generate.navigation import site_navigation  # noqa: E402

# Pages of the former documentation, until the new ones replace them.
FORMER = (
    *("architecture", "collection", "daily_list", "detection", "diagnosis", "formats"),
    *("operations", "quality", "response", "scale"),
)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add generated pages, then set the navigation to all pages there are."""
    for name in FORMER:
        if former := files.get_file_from_path(f"{name}.md"):
            files.remove(former)
    config.nav = site_navigation(file.src_uri for file in files.documentation_pages())
    return files
