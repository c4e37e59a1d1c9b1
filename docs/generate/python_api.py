"""The reference of the Python API: public modules of the layers that hold no input or output."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

from docs.generate.markdown import table

__all__ = ["python_api_pages"]

ROOT = Path(__file__).parents[2]
LAYERS = ("features", "models", "evaluation", "response")
HEAD = """# Python API

The public modules below the command line, for people who extend forewarn or use its parts in their
own code. All of them take values and return values; they read no clock and touch no file, except
that a model reads and writes its own. Modules of `forewarn.pipelines` are internal: call the
[commands](../cli.md) instead. Names and signatures may change between versions.

"""


def python_api_pages() -> dict[str, str]:
    """Return source path in the site -> Markdown, a page for each package."""
    packages: dict[str, list[str]] = defaultdict(list)
    for layer in LAYERS:
        for path in sorted((ROOT / layer).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            if parts[-1] != "__init__" and _is_public(path):
                packages["/".join(parts[:2] if len(parts) > 2 else parts[:1])].append(
                    ".".join(parts)
                )
    pages = {}
    rows = []
    for package, modules in sorted(packages.items()):
        name = package.replace("/", ".")
        page = f"{name.replace('.', '_')}.md"
        rows.append(
            (f"[`forewarn.{name}`]({page})", _first_sentence(ROOT / package / "__init__.py"))
        )
        body = "\n\n".join(f"::: forewarn.{module}" for module in modules)
        pages[f"reference/python/{page}"] = f"# forewarn.{name}\n\n{body}\n"
    pages["reference/python/index.md"] = HEAD + table(("package", "contents"), rows)
    return pages


def _is_public(path: Path) -> bool:
    return any(
        isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__"
        for node in _tree(path).body
    )


def _first_sentence(path: Path) -> str:
    text = ast.get_docstring(_tree(path)) or ""
    return " ".join(text.split("\n\n")[0].split())


def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))
