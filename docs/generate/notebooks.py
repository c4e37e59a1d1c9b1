"""Pages of the notebooks, executed while the site is built: the repository holds no outputs.

`FOREWARN_NOTEBOOKS` says how: `quick` (the default), `full`, or `off`. A notebook that fails or
warns, shows no picture, leaves files or connects to another machine ends the build. That is the
test of the notebooks: each of them runs for a minute, so it runs once.
"""

from __future__ import annotations

import base64
import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any, Literal

import nbformat as untyped_nbformat
from nbclient import NotebookClient

__all__ = ["execute", "notebook_pages"]

nbformat: Any = untyped_nbformat  # its functions have no types
ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
CELL_SECONDS = 3600
Mode = Literal["quick", "full", "off"]

# Run in the kernel before the first cell.
LOOPBACK_ONLY = """
import sys

def _only_loopback(event, arguments):
    if event == "socket.connect" and isinstance(arguments[1], tuple):
        if arguments[1][0] not in ("127.0.0.1", "::1", "localhost"):
            raise PermissionError(f"expected a study without network, found {arguments[1]}")

sys.addaudithook(_only_loopback)
"""
NOTES: Mapping[Mode, str] = {
    "quick": "The outputs on this page come from a short run on part of the data, which shows what "
    "the notebook does. Its figures mean little. `FOREWARN_NOTEBOOKS=full make docs` runs it in "
    "full.",
    "full": "The outputs on this page come from a full run.",
    "off": "This page was built without running the notebook, so it has no outputs.",
}
QUICK: Mapping[Mode, Mapping[str, str]] = {
    "quick": {"FOREWARN_QUICK": "1"},
    "full": {"FOREWARN_QUICK": ""},
}


def notebook_pages() -> Iterator[tuple[str, str | bytes]]:
    """Yield (path in the site, content) of the pages of all notebooks and of their pictures."""
    mode = _mode(os.environ.get("FOREWARN_NOTEBOOKS", "quick"))
    data = Path(os.environ.get("FOREWARN_SHARED_DATA", ROOT.parent / "shared" / "data"))
    with ThreadPoolExecutor(2) as pool:
        modes = ["off" if _needs(path) and not data.is_dir() else mode for path in NOTEBOOKS]
        results = list(pool.map(_executed, NOTEBOOKS, map(_mode, modes), [data] * len(NOTEBOOKS)))
    for path, done, notebook in zip(NOTEBOOKS, modes, results, strict=True):
        yield from _page(path.stem, notebook, _mode(done))


def _mode(text: str) -> Mode:
    for mode in NOTES:
        if text == mode:
            return mode
    raise ValueError(f"FOREWARN_NOTEBOOKS is {text!r}, expected one of {', '.join(NOTES)}.")


def _needs(path: Path) -> bool:
    """Say whether a notebook needs the data sets that lie next to the repository."""
    return "FOREWARN_SHARED_DATA" in path.read_text(encoding="utf-8")


@cache  # `mkdocs serve` asks again after each change
def _executed(path: Path, mode: Mode, data: Path) -> Any:
    """Return a notebook with its outputs."""
    notebook = nbformat.read(path, as_version=4)
    if mode == "off":
        return notebook
    execute(notebook, {"FOREWARN_SHARED_DATA": str(data), **QUICK[mode]})
    return notebook


def execute(notebook: Any, environment: Mapping[str, str]) -> None:
    """Run all cells in an empty folder, without network, and check what they leave.

    Raises
    ------
    nbclient.exceptions.CellExecutionError
        If a cell fails.
    ValueError
        If a cell warns, no cell shows a picture, or files are left in the folder.
    """
    with tempfile.TemporaryDirectory() as settings, tempfile.TemporaryDirectory() as folder:
        names = ("IPYTHONDIR", "JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR")
        own = {name: f"{settings}/{name.lower()}" for name in names}
        client = NotebookClient(
            notebook,
            timeout=CELL_SECONDS,
            kernel_name="python3",
            resources={"metadata": {"path": folder}},
        )
        notebook.cells.insert(0, nbformat.v4.new_code_cell(LOOPBACK_ONLY))
        client.execute(env={**os.environ, **own, **environment})
        del notebook.cells[0]
        left = sorted(path.name for path in Path(folder).iterdir())
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    for output in outputs:
        if output.get("name") == "stderr" and "Warn" in output.text:
            raise ValueError(f"expected a notebook without warnings, found {output.text!r}")
    if not any("image/png" in output.get("data", {}) for output in outputs):
        raise ValueError("expected a notebook that shows a picture, found none")
    if left:
        raise ValueError(f"expected a notebook that leaves no files, found {', '.join(left)}")


# --- as Markdown ----------------------------------------------------------------------------------


def _page(name: str, notebook: Any, mode: Mode) -> Iterator[tuple[str, str | bytes]]:
    """Yield the page of a notebook, then its pictures."""
    parts: list[str] = []
    pictures: list[bytes] = []
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            parts.append(cell.source)
        else:
            parts.append(_folded(cell.source))
            for output in cell.outputs:
                parts.append(_output(output, name, pictures))
        if len(parts) == 1:
            parts.append(f'!!! note "How this page is made"\n    {NOTES[mode]}')
    yield f"notebooks/{name}.md", "\n\n".join(part for part in parts if part) + "\n"
    for number, picture in enumerate(pictures):
        yield f"notebooks/{name}_{number}.png", picture


def _folded(code: str) -> str:
    """Return code that opens on a click."""
    lines = ["```python", *code.splitlines(), "```"]
    return '??? abstract "Code"\n' + "\n".join(f"    {line}".rstrip() for line in lines)


def _output(output: Any, name: str, pictures: list[bytes]) -> str:
    if output.output_type == "stream":
        return "" if output.name == "stderr" else f"```text\n{output.text.rstrip()}\n```"
    data = output.get("data", {})
    if "image/png" in data:
        pictures.append(base64.b64decode(data["image/png"]))
        return f"![Output of the cell above]({name}_{len(pictures) - 1}.png)"
    if "text/markdown" in data:
        return str(data["text/markdown"])
    if "text/html" in data:
        return _html(str(data["text/html"]))
    return f"```text\n{data.get('text/plain', '')}\n```"


def _html(text: str) -> str:
    r"""Return HTML without blank lines, at which Markdown would end the block.

    The site styles only tables without a class.

    >>> _html('<table border="1" class="dataframe">\n\n  <tr></tr></table>').split()
    ['<table>', '<tr></tr></table>']
    """
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return re.sub(r"<table[^>]*>", "<table>", "\n".join(lines))
