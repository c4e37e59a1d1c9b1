"""Every notebook runs from its first cell to its last, in its own folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nbformat as untyped_nbformat
import pytest
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

nbformat: Any = untyped_nbformat  # its functions have no types
NOTEBOOKS = sorted((Path(__file__).parents[1] / "notebooks").glob("*.ipynb"))
CELL_SECONDS = 600

# Run in the kernel before the first cell.
LOOPBACK_ONLY = """
import sys

def _only_loopback(event, arguments):
    if event == "socket.connect" and isinstance(arguments[1], tuple):
        if arguments[1][0] not in ("127.0.0.1", "::1", "localhost"):
            raise PermissionError(f"expected a study without network, found {arguments[1]}")

sys.addaudithook(_only_loopback)
"""
# Model quality is tested elsewhere.
SHORT_TRAINING = """
from forewarn.models.prediction.networks import network_training
from forewarn.models.prediction.trees import tree_model

tree_model._N_TREES = 60
network_training._MAX_EPOCHS = 3
network_training._MIN_EPOCHS = network_training._FIXED_EPOCHS = 2
"""


def _execute(notebook: Any, folder: Path) -> None:
    """Run all cells in `folder`; a cell that raises ends it with CellExecutionError."""
    first = [nbformat.v4.new_code_cell(text) for text in (LOOPBACK_ONLY, SHORT_TRAINING)]
    notebook.cells[:0] = first
    resources = {"metadata": {"path": str(folder)}}
    NotebookClient(
        notebook, timeout=CELL_SECONDS, kernel_name="python3", resources=resources
    ).execute()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty working folder; Jupyter's own files go to a sibling folder."""
    for name in ("IPYTHONDIR", "JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR"):
        monkeypatch.setenv(name, str(tmp_path / name.lower()))
    working = tmp_path / "working"
    working.mkdir()
    return working


def _outputs(notebook: Any) -> list[Any]:
    return [out for cell in notebook.cells for out in cell.get("outputs", ())]


def test_notebooks_exist() -> None:
    assert NOTEBOOKS


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_stored_notebook_has_no_outputs(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    assert _outputs(notebook) == []
    assert {cell.get("execution_count") for cell in notebook.cells} == {None}


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_runs_and_shows_pictures(
    path: Path, folder: Path, shared_data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FOREWARN_SHARED_DATA", str(shared_data))
    monkeypatch.setenv("FOREWARN_QUICK", "1")
    notebook = nbformat.read(path, as_version=4)
    _execute(notebook, folder)
    outputs = _outputs(notebook)
    assert [out.text for out in outputs if out.get("name") == "stderr" and "Warn" in out.text] == []
    assert any("image/png" in out.get("data", {}) for out in outputs)
    assert list(folder.iterdir()) == []


def test_notebook_with_network_access_fails(folder: Path) -> None:
    cell = 'import socket\nsocket.create_connection(("192.0.2.1", 80), timeout=1)'
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell)])
    with pytest.raises(CellExecutionError, match="expected a study without network"):
        _execute(notebook, folder)
