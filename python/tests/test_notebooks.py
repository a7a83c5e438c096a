"""The notebooks run from the first cell to the last."""
import pathlib

import pytest

NOTEBOOKS = pathlib.Path(__file__).resolve().parents[2] / "examples" / "notebooks"


@pytest.mark.parametrize("name", sorted(p.name for p in NOTEBOOKS.glob("*.ipynb")))
def test_notebook(name, tmp_path):
    nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed")
    import nbformat

    pytest.importorskip("ipykernel", reason="ipykernel is not installed")
    notebook = nbformat.read(NOTEBOOKS / name, as_version=4)
    assert all(not cell.get("outputs") for cell in notebook.cells), "notebooks are stored without outputs"
    nbclient.NotebookClient(notebook, timeout=120, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}).execute()
    assert len(notebook.cells) >= 4


def test_there_are_three():
    assert len(list(NOTEBOOKS.glob("*.ipynb"))) == 3
