"""The notebooks of the gallery, each from its first cell to its last; that for a GPU in the cloud here on the CPU."""

import os
import re
import shutil
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[1] / "docs"
NOTEBOOKS = sorted(path.stem for path in DOCS.glob("*.ipynb"))
CLOUD = "cloud_gpu"  # runs the doctor and takes timings
# nbclient and the kernel's sockets, not ours
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")


def read(name):
    import nbformat

    notebook = nbformat.read(DOCS / f"{name}.ipynb", as_version=4)
    nbformat.validate(notebook)
    return notebook


def execute(notebook, folder):
    """The notebook's code cells with their outputs. A cell that fails is an error."""
    from nbclient import NotebookClient

    NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(folder)}}).execute()
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def outputs(cells, kind):
    return [output.data[kind] for cell in cells for output in cell.outputs if kind in output.get("data", {})]


def printed(cell):
    return "".join(output.get("text", "") for output in cell.outputs)


def test_there_are_five():
    assert len(NOTEBOOKS) == 5


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_notebooks_are_kept_without_outputs(name):
    cells = [cell for cell in read(name).cells if cell.cell_type == "code"]
    assert all(not cell.outputs and cell.execution_count is None for cell in cells)


@pytest.mark.parametrize("name", [name for name in NOTEBOOKS if name != CLOUD])
def test_notebooks_run_with_pictures_and_without_warnings(name, tmp_path):
    cells = execute(read(name), tmp_path)
    assert outputs(cells, "image/png")
    said = [output for cell in cells for output in cell.outputs if output.get("name") == "stderr"]
    # who waits for the compiler is told why; that is one line, and only where nothing was compiled before
    assert [output.text for output in said] in ([], ["compiling kernels for the CPU, once: some seconds\n"])
    assert any("confirmed" in text or "Converged" in text for text in [*map(printed, cells), *outputs(cells, "text/plain")])
    assert list(tmp_path.iterdir()) == []  # nothing is left behind


@pytest.mark.slow
def test_the_notebook_for_a_gpu_runs_where_there_is_none(monkeypatch):
    # as on a machine without one, whatever this is
    monkeypatch.setenv("PATH", os.pathsep.join(p for p in os.environ["PATH"].split(os.pathsep) if not _has_smi(p)))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    said = {cell.source.splitlines()[0]: printed(cell) for cell in execute(read(CLOUD), DOCS)}
    doctor, tests, bench = (
        next(text for source, text in said.items() if source.startswith(name)) for name in ("doctor =", "tests =", "bench =")
    )
    assert "checks passed on the CPU" in doctor
    assert "skipped" in tests
    assert "failed" not in tests
    assert "| d = 500 " in bench
    assert "true error" in bench
    *_, last = said.values()
    assert last == "{'GPU': False, 'doctor': 0, 'tests': 0, 'bench': 0} (0 is good)\n"


def _has_smi(folder):
    return shutil.which("nvidia-smi", path=folder) is not None


def test_the_notebook_for_a_gpu_needs_no_package_that_the_library_does_not_bring():
    imported = {
        line.split()[1].partition(".")[0]
        for cell in read(CLOUD).cells
        if cell.cell_type == "code"
        for line in cell.source.splitlines()
        if line.strip().startswith("import ")
    }
    assert imported - set(sys.stdlib_module_names) == {"rcurc_gpu", "cupy"}


# ---------------------------------------------------------------- what notebooks show of a figure and of a bar


def shown(*sources):
    """The code cells of a new notebook, executed."""
    import nbformat

    return execute(nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in sources]), ".")


def test_figures_and_axes_are_shown_once_with_and_without_pyplot():
    make = "import rcurc_gpu as rg\nproblem = rg.synthetic((60, 50), 1, n_rows=30, n_cols=30, rate=0.8, seed=0)"
    draw = "rg.plot.sampling_pattern(problem.samples)"
    own = "figure, ax = plt.subplots()\nrg.plot.sampling_pattern(problem.samples, ax)"
    cells = shown(make, draw, f"{draw}.figure", f"{draw};", "import matplotlib.pyplot as plt", draw, own)
    assert [len(outputs([cell], "image/png")) for cell in cells] == [0, 1, 1, 0, 0, 1, 1]


def test_bars_are_html_that_stays():
    make = "from rcurc_gpu.progress import Progress"
    run = """
with Progress(visible=True) as progress:
    progress.compiling(True)
    progress.stage("columns <and> rows", 40)
    progress.advance(30)
    progress.advance(10)
    progress.stage("core")
"""
    first, known, unknown = outputs(shown(make, run), "text/html")
    assert first == ""  # the bar without a name is gone
    assert re.fullmatch(r'<div><progress value="1.000" max="1"></progress> <code>.*</code></div>', known)
    assert "columns &lt;and&gt; rows: 100 % of 40" in known
    assert '<progress value="1" max="1">' in unknown
    assert "core: 0it" in unknown
