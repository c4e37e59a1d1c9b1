"""MkDocs calls these while it builds the site: they add generated pages and the navigation."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))  # MkDocs loads this file by its path

from docs.generate.commands import commands_page  # noqa: E402
from docs.generate.http_api import response_api_page  # noqa: E402
from docs.generate.knowledge import checks_page, patterns_page, xids_page  # noqa: E402
from docs.generate.metrics import metrics_page  # noqa: E402
from docs.generate.navigation import site_navigation  # noqa: E402
from docs.generate.notebooks import notebook_pages  # noqa: E402
from docs.generate.python_api import python_api_pages  # noqa: E402
from docs.generate.settings import configuration_page  # noqa: E402


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add generated pages, then set the navigation to all pages there are."""
    for path, content in (*generated_pages(), *notebook_pages()):
        files.append(File.generated(config, path, content=content))
    config.nav = site_navigation(
        file.src_uri for file in files.documentation_pages(inclusion=InclusionLevel.is_included)
    )
    return files


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """Refuse a page that loads something from another host: the site works offline."""
    del config
    if found := re.search(
        r"<(?:script|img|link|iframe)[^>]+(?:src|href)=\"?(?:https?:)?//", output
    ):
        raise PluginError(f"{page.file.src_uri} loads from another host: {found[0]}")
    return output


def generated_pages() -> Iterator[tuple[str, str]]:
    """Yield (path in the site, Markdown) of each page that is made from the code."""
    yield "reference/checks.md", checks_page()
    yield "reference/cli.md", commands_page()
    yield "reference/configuration.md", configuration_page()
    yield "reference/http/response.md", response_api_page()
    yield "reference/log_patterns.md", patterns_page()
    yield "reference/metrics.md", metrics_page()
    yield "reference/xids.md", xids_page()
    yield from python_api_pages().items()
