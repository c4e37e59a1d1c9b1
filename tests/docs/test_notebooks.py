"""Notebooks are stored without outputs; `make docs` runs them, by the function tested here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import nbformat as untyped_nbformat
import pytest
from nbclient.exceptions import CellExecutionError
from tests.docs.conftest import Generators

nbformat: Any = untyped_nbformat  # its functions have no types
NOTEBOOKS = sorted((Path(__file__).parents[2] / "notebooks").glob("*.ipynb"))
Execute = Callable[[Any, Mapping[str, str]], None]
PICTURE = """
from IPython.display import Image, display
display(Image(data=b"\\x89PNG\\r\\n\\x1a\\n", format="png"))
"""


@pytest.fixture
def execute(generator: type[Generators]) -> Execute:
    function: Execute = generator.load("notebooks").execute
    return function


def _notebook(*cells: str) -> Any:
    return nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])


def test_notebooks_exist() -> None:
    assert NOTEBOOKS


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_stored_notebook_has_no_outputs(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    assert [out for cell in notebook.cells for out in cell.get("outputs", ())] == []
    assert {cell.get("execution_count") for cell in notebook.cells} == {None}


def test_cells_run_with_their_environment(execute: Execute) -> None:
    notebook = _notebook(PICTURE, "import os\nprint(os.environ['FOREWARN_QUICK'])")
    execute(notebook, {"FOREWARN_QUICK": "yes"})
    assert [cell.outputs[0].get("text", "a picture") for cell in notebook.cells] == [
        "a picture",
        "yes\n",
    ]


def test_network_access_is_refused(execute: Execute) -> None:
    cell = 'import socket\nsocket.create_connection(("192.0.2.1", 80), timeout=1)'
    with pytest.raises(CellExecutionError, match="expected a study without network"):
        execute(_notebook(cell), {})


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        ("1 + 1", "shows a picture, found none"),
        ("import warnings\nwarnings.warn('old')", "without warnings, found .*old"),
        ("open('left.txt', 'w').close()", "leaves no files, found left.txt"),
    ],
)
def test_what_a_notebook_leaves_is_checked(cell: str, message: str, execute: Execute) -> None:
    cells = (cell,) if "picture" in message else (PICTURE, cell)
    with pytest.raises(ValueError, match=message):
        execute(_notebook(*cells), {})
