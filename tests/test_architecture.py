"""Architecture checks: the drawing, imports, links, and conventions of the code."""

from __future__ import annotations

import ast
import importlib.util
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType

import grimp
import pytest

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGE = DOCS / "explanation" / "architecture.md"
LAYERS = ("features", "models", "evaluation", "response", "pipelines")
PLACEHOLDERS = {
    *("found", "one", "place", "mine", "told", "kept", "there", "them", "here"),
    *("asked", "given", "wanted", "said", "of", "take"),
}
LONGEST_BODY = 40


def load_drawing() -> ModuleType:
    spec = importlib.util.spec_from_file_location("rooms", DOCS / "rooms.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


drawing = load_drawing()
PATHS = sorted(path for path in drawing.modules() if path.parts[0] in LAYERS)


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse((ROOT / path).read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def imports() -> grimp.ImportGraph:
    return grimp.build_graph(*(f"forewarn.{layer}" for layer in LAYERS), cache_dir=None)


def room_of_module(name: str) -> str:
    _, *parts = name.split(".")
    return str(drawing.room_of(Path(*parts))) if len(parts) > 1 else parts[0]


# --- the drawing ----------------------------------------------------------------------------------


def test_drawing_matches_code() -> None:
    """Run `python docs/rooms.py` to redraw it."""
    assert (DOCS / "rooms.svg").read_text(encoding="utf-8") == drawing.draw()


def test_drawn_packages_exist() -> None:
    folders = {
        path.parent.relative_to(ROOT)
        for layer in LAYERS
        for path in (ROOT / layer).glob("*/__init__.py")
    }
    alone = {
        path.relative_to(ROOT).with_suffix("").as_posix()
        for path in (ROOT / "pipelines").glob("[a-z]*.py")
    }
    packages = {folder.as_posix() for folder in folders} | alone
    assert {room for room in drawing.rooms() if "/" in room} == packages
    assert {room for room in drawing.rooms() if "/" not in room} == {
        *("dags", "evaluation", "features", "models")
    }


def test_drawn_arrows_match_imports(imports: grimp.ImportGraph) -> None:
    pairs = {
        (room_of_module(module), room_of_module(target))
        for module in imports.modules
        for target in imports.find_modules_directly_imported_by(module)
    }
    between = {(room, target) for room, target in pairs if room != target}
    arrows = drawing.arrows(drawing.imports())
    from_dags = {(room, target) for room, target in arrows if room == "dags"}
    assert arrows - from_dags <= between
    direct: dict[str, set[str]] = {}
    for room, target in arrows:
        direct.setdefault(room, set()).add(target)
    assert {pair for pair in between if pair[1] not in drawing.reached(direct, pair[0])} == set()


def test_no_arrow_goes_up() -> None:
    height = {room: number for number, row in enumerate(drawing.rows()) for room in row}
    pairs = drawing.arrows(drawing.imports())
    assert [pair for pair in pairs if height[pair[0]] > height[pair[1]]] == []


def test_architecture_page_names_each_package() -> None:
    text = PAGE.read_text(encoding="utf-8")
    names = [room for room in drawing.rooms() if "/" in room]
    assert [name for name in names if f"| `{name}" not in text] == []


def test_suggested_files_exist() -> None:
    rows = re.findall(r"^\| `([a-z]+/[a-z_]+)` \|.*\| ([^|]+) \|$", PAGE.read_text(), re.MULTILINE)
    files = [ROOT / room / name for room, names in rows for name in re.findall(r"`(.+?)`", names)]
    assert len(files) > 30
    assert [file for file in files if not file.is_file()] == []


def paths_in(page: Path) -> Iterator[str]:
    """Yield the repository paths that a page names."""
    for path in re.findall(r"`([a-z][\w/.-]*/[\w./-]*)`", page.read_text(encoding="utf-8")):
        if path.split("/")[0] in {*LAYERS, "dags", "docs", "tests", "notebooks", "benchmarks"}:
            yield path


NEW = {
    "models/prediction/yours.py",
    "tests/models/prediction/test_yours.py",
}  # written by users


@pytest.mark.parametrize(
    "page",
    [
        "CONTRIBUTING.md",
        "README.md",
        "docs/explanation/architecture.md",
        "docs/how-to/add_a_finding.md",
        "docs/how-to/add_a_model.md",
        "docs/how-to/add_a_telemetry_field.md",
    ],
)
def test_paths_on_pages_exist(page: str) -> None:
    named = set(paths_in(ROOT / page))
    assert named
    assert {path for path in named - NEW if not (ROOT / path).exists()} == set()


# `make docs` generates these pages and checks links to them.
GENERATED = {
    *("checks.md", "cli.md", "configuration.md", "log_patterns.md", "metrics.md", "response.md"),
    "xids.md",
}


def anchors(page: Path) -> set[str]:
    """Return the valid anchors of a page."""
    titles = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize(
    "page", sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md")]), ids=lambda p: p.name
)
def test_links_of_page_resolve(page: Path) -> None:
    links = re.findall(r"\]\(([^)]+)\)", page.read_text(encoding="utf-8"))
    dead = []
    for link in [link for link in links if not link.startswith("http")]:
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        if target.name in GENERATED:
            continue
        if not target.exists() or (anchor and anchor not in anchors(target)):
            dead.append(link)
    assert dead == []


def test_cited_sections_of_formats_exist() -> None:
    sections = set(
        re.findall(r"^## (\d+)\.", (DOCS / "reference" / "formats.md").read_text(), re.MULTILINE)
    )
    cited = {
        number
        for path in PATHS
        for number in re.findall(r"formats\.md, section (\d+)", (ROOT / path).read_text())
    }
    assert cited
    assert cited <= sections
    pages = [path for path in PATHS if "CONTRACTS" in (ROOT / path).read_text()]
    assert pages == []  # pages that are not in the repository


# --- conventions ----------------------------------------------------------------------------------


def test_modules_of_package_have_no_import_cycle(imports: grimp.ImportGraph) -> None:
    circles = {
        room_of_module(module)
        for module in imports.modules
        for target in imports.find_modules_directly_imported_by(module)
        if imports.chain_exists(importer=target, imported=module)
    }
    assert circles == set()


def bodies(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Yield each function and the number of lines of its body without the docstring."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            body = node.body[1:] if ast.get_docstring(node) is not None else node.body
            first = body[0].lineno if body else node.end_lineno or 0
            yield node.name, (node.end_lineno or 0) - first + 1 if body else 0


def test_function_bodies_have_at_most_forty_lines() -> None:
    long = [
        f"{path}: {name}"
        for path in PATHS
        for name, lines in bodies(tree_of(path))
        if lines > LONGEST_BODY
    ]
    assert long == []


def bound_names(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Yield the names that a module binds: variables, arguments, fields, functions and classes."""
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name):
                yield name, node.lineno
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield name, node.lineno
            case ast.ClassDef(name=name) | ast.alias(asname=str(name)):
                yield name, node.lineno
            case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)):
                yield name, node.lineno


def test_names_are_no_placeholders() -> None:
    """A name describes its value; these names fit any value."""
    empty = [
        f"{path}:{line}: {name}"
        for path in PATHS
        for name, line in bound_names(tree_of(path))
        if name.lstrip("_").lower() in PLACEHOLDERS
    ]
    assert empty == []


def paths_for_pyarrow(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Yield the arguments of `pyarrow.parquet` calls, as code, and their lines."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(
                func=ast.Attribute(value=ast.Name(id="pq"), attr="write_table"), args=[_, file]
            ):
                yield ast.unparse(file), node.lineno
            case ast.Call(func=ast.Attribute(value=ast.Name(id="pq")), args=[file, *_]):
                yield ast.unparse(file), node.lineno


def test_no_path_is_parsed_as_uri() -> None:
    """A folder such as `run:1` would be a URI; an open file or `arrow_path(...)` is safe."""
    bare = [
        f"{path}:{line}: {file}"
        for path in PATHS
        if path.parts[0] == "pipelines"
        for file, line in paths_for_pyarrow(tree_of(path))
        if file != "file"  # an open file
        and not file.startswith(("arrow_path(", "_content("))
    ]
    assert bare == []


def test_checks_detect_bad_names_and_bodies() -> None:
    """The checks above must detect violations."""
    tree = ast.parse("def f(there):\n    for found in there:\n        mine = found\n")
    assert {name for name, _ in bound_names(tree)} & PLACEHOLDERS == {"found", "mine", "there"}
    body = "def long():\n    'Doc.'\n" + "    x = 1\n" * 41
    assert dict(bodies(ast.parse(body))) == {"long": 41}
    calls = "pq.write_table(table, path)\nwith pq.ParquetFile(part) as file:\n    pq.foo()\n"
    assert {file for file, _ in paths_for_pyarrow(ast.parse(calls))} == {"path", "part"}
