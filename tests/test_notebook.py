"""The notebook for a GPU in the cloud, from its first cell to its last; here on the CPU."""

import os
import shutil
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
def test_the_notebook_runs_where_there_is_no_gpu(monkeypatch):
    import nbformat
    from nbclient import NotebookClient

    # as on a machine without one, whatever this is
    monkeypatch.setenv("PATH", os.pathsep.join(p for p in os.environ["PATH"].split(os.pathsep) if not _has_smi(p)))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    notebook = nbformat.read(ROOT / "docs" / "cloud_gpu.ipynb", as_version=4)
    nbformat.validate(notebook)
    assert all(cell.cell_type != "code" or not cell.outputs for cell in notebook.cells), "kept with outputs"
    NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(ROOT)}}).execute()
    said = {cell.source.splitlines()[0]: _text(cell) for cell in notebook.cells if cell.cell_type == "code"}
    doctor, tests, bench = (next(text for source, text in said.items() if source.startswith(name)) for name in _CELLS)
    assert "checks passed on the CPU" in doctor
    assert "skipped" in tests
    assert "failed" not in tests
    assert "| d = 500 " in bench
    assert "true error" in bench
    *_, last = said.values()
    assert last == "{'GPU': False, 'doctor': 0, 'tests': 0, 'bench': 0} (0 is good)\n"


_CELLS = ("doctor =", "tests =", "bench =")


def _has_smi(folder):
    return shutil.which("nvidia-smi", path=folder) is not None


def _text(cell):
    return "".join(output.get("text", "") for output in cell.outputs)


def test_the_notebook_needs_no_package_that_the_library_does_not_bring():
    import nbformat

    notebook = nbformat.read(ROOT / "docs" / "cloud_gpu.ipynb", as_version=4)
    imported = {
        line.split()[1].partition(".")[0]
        for cell in notebook.cells
        if cell.cell_type == "code"
        for line in cell.source.splitlines()
        if line.strip().startswith("import ")
    }
    assert imported - set(sys.stdlib_module_names) == {"rcurc_gpu", "cupy"}
