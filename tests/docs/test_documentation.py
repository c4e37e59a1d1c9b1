"""The pages of `docs/`, and what the generated ones are made of. `make docs` checks all links."""

from __future__ import annotations

import ast
import doctest
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.docs.conftest import Generators

from forewarn.pipelines.collector.http_app import CollectorApp
from forewarn.pipelines.metrics.declarations import SOURCES

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
MAX_WORDS = 35_500  # 25,000 for Slurm alone; Kubernetes, recovery, inspection, repairs add pages
GENERATORS = sorted(
    path.stem for path in (DOCS / "generate").glob("*.py") if path.stem not in ("hooks",)
)


def count_words(text: str) -> int:
    """Count words; signs of Markdown alone are none."""
    return sum(any(map(str.isalnum, word)) for word in text.split())


def test_the_pages_are_short_enough_to_be_read() -> None:
    words = {page.relative_to(DOCS).as_posix(): count_words(page.read_text()) for page in PAGES}
    assert sum(words.values()) <= MAX_WORDS, sorted(words.items(), key=lambda pair: -pair[1])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_has_one_title_and_says_what_it_is_for(page: Path) -> None:
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    assert re.findall(r"^# ", text, re.MULTILINE) == ["# "]
    title, _, body = text.partition("\n")
    assert title.startswith("# ")
    assert re.match(r"\n[\w*`_]", body), "a paragraph follows the title"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_blocks_in_lists_are_indented_by_four(page: Path) -> None:
    """MkDocs ends a list at a block that is indented by less, and numbers the next one from 1."""
    assert re.findall(r"^\n {1,3}\S.*|^ {1,3}```.*", page.read_text(), re.MULTILINE) == []


def test_each_page_is_in_the_navigation_once(generator: type[Generators]) -> None:
    paths = [page.relative_to(DOCS).as_posix() for page in PAGES]
    entries = generator.load("navigation").site_navigation(paths)
    shown = re.findall(r"[\w/-]+\.md", str(entries))
    assert sorted(shown) == sorted(paths)
    assert all(isinstance(entry, dict) for entry in entries), "a page outside of all sections"


@pytest.mark.parametrize("name", GENERATORS)
def test_examples_of_the_generators(generator: type[Generators], name: str) -> None:
    assert doctest.testmod(generator.load(name)).failed == 0


def test_each_key_of_the_configuration_has_a_meaning(generator: type[Generators]) -> None:
    settings = generator.load("settings")
    for name, (model, _) in settings.FILES.items():
        comments = settings.read_comments((ROOT / name).read_text())
        keys = set(settings.documented_keys(model))
        assert {key for key in keys if not comments.get(key)} == set()
        assert {key for key in comments if key[1]} <= keys


def test_each_option_of_a_command_is_explained(generator: type[Generators]) -> None:
    page = generator.load("commands").commands_page()
    rows = re.findall(r"^\| `(.+?)` \| .*? \| (.*) \|$", page, re.MULTILINE)
    assert len(rows) > 100
    assert [option for option, meaning in rows if not meaning] == []


def test_each_metric_is_explained(generator: type[Generators]) -> None:
    page = generator.load("metrics").metrics_page()
    kinds = "counter|gauge|histogram"
    rows = re.findall(rf"^\| `(\w+)` \| (?:{kinds}) \|.*\| (.*) \|$", page, re.MULTILINE)
    assert {name for name, _ in rows} == {m.sample for many in SOURCES.values() for m in many}
    assert all(meaning.endswith(".") for _, meaning in rows)


def test_each_route_of_the_collector_is_on_its_page() -> None:
    text = (DOCS / "reference" / "http" / "collector.md").read_text()
    routes = set(re.findall(r"^\| `[A-Z]+ (\S+)`", text, re.MULTILINE))
    app = CollectorApp(tokens=None, policy={}, intake=None, bodies=None).app()  # type: ignore[arg-type]
    assert routes == {getattr(route, "path", "") for route in app.routes}


# Layers whose docstrings are published.
PUBLIC = sorted(
    path
    for layer in ("features", "models", "evaluation", "response")
    for path in (ROOT / layer).rglob("*.py")
)


def docstrings(path: Path) -> Iterator[tuple[ast.AST, str]]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            yield node, ast.get_docstring(node) or ""


def documented_parameters(text: str) -> set[str]:
    """Return the names in the section `Parameters` of a docstring in NumPy style."""
    section = re.search(r"^Parameters\n-+\n(.*?)(?=^\w+\n-{4,}$|\Z)", text, re.M | re.S)
    lines = section[1].splitlines() if section else []
    heads = [line.partition(" : ")[0] for line in lines if re.match(r"[*\w]", line)]
    return {name.strip("* ") for head in heads for name in head.split(",")}


def test_documented_parameters_are_those_of_the_function() -> None:
    wrong = set()
    for path in PUBLIC:
        for node, text in docstrings(path):
            if isinstance(node, ast.FunctionDef):
                names = {arg.arg for arg in ast.walk(node.args) if isinstance(arg, ast.arg)}
                unknown = documented_parameters(text) - names
                wrong |= {f"{path.relative_to(ROOT)}: {node.name}: {name}" for name in unknown}
    assert wrong == set()


def test_examples_after_a_section_are_a_section_of_their_own() -> None:
    """Without the title, the site takes them for the description of a parameter."""
    wrong = {
        path.relative_to(ROOT).as_posix()
        for path in PUBLIC
        for _, text in docstrings(path)
        if re.search(r"\n-{5,}\n", text) and ">>>" in text and "Examples\n--------" not in text
    }
    assert wrong == set()
