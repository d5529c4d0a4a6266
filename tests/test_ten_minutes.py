"""The first ten minutes of a stranger: README, a wide and a long CSV, a data frame, a notebook, and a mistake in each.

Commands run in an environment of their own, with nothing compiled before and no cache, as they come on a new machine.
"""

import json
import os
import re
import subprocess
import sys
import venv
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """An empty directory, and in it an environment with this package.

    What the package needs comes from the tests' environment, so that no network is used; `.ci/run` downloads all of it.
    """
    there = tmp_path_factory.mktemp("stranger")
    venv.create(there / ".venv", with_pip=False)
    scripts = there / ".venv" / ("Scripts" if os.name == "nt" else "bin")
    python = scripts / "python"
    asked = [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    site = Path(subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip())
    known = [path for path in sys.path if path.endswith("site-packages")]
    (site / "installed.pth").write_text("\n".join([str(ROOT), *known]) + "\n")
    return there, python


def run(home, *arguments, code=None):
    """A command of the stranger's: its exit status, what it printed, and what it said of errors.

    Without the line that says why the first command takes long.
    """
    there, python = home
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "RCURC_TEST_DEVICE")}
    environment |= {"NUMBA_CACHE_DIR": str(there / "cache"), "MPLBACKEND": "agg", "COLUMNS": "100"}
    given = ["-c", code] if code is not None else ["-m", "rcurc_gpu", *map(str, arguments)]
    done = subprocess.run([python, *given], cwd=there, env=environment, capture_output=True, text=True, timeout=600)
    assert "Traceback" not in done.stderr or code is not None, done.stderr
    return done.returncode, done.stdout, done.stderr.removeprefix("compiling kernels for the CPU, once: some seconds\n")


@pytest.fixture(scope="module")
def levels():
    """A table of 80 sites and 60 days with noise, holes and glitches; and its truth."""
    rng = np.random.default_rng(3)
    X = 20 + rng.standard_normal((80, 2)) @ rng.standard_normal((2, 60))
    Y = np.where(rng.random(X.shape) < 0.04, -99.0, X + 0.1 * rng.standard_normal(X.shape))
    Y[rng.random(X.shape) < 0.25] = np.nan
    index = pd.Index([f"site {k}" for k in range(80)], name="site")
    columns = pd.Index([f"day {k}" for k in range(60)], name="day")
    return pd.DataFrame(Y, index, columns), pd.DataFrame(X, index, columns)


def test_readme_names_the_commands_and_the_extra_that_makes_it_fast():
    first, tests = re.findall(r"```sh\n(.*?)\n```", README, flags=re.DOTALL)[:2]
    assert first.endswith('pip install --quiet ".[fast,plot]" && .venv/bin/rcurc-gpu demo')
    assert tests.endswith("-m pytest -n auto --dist loadfile")


def test_the_demo_solves_and_says_what_it_runs_on(home):
    code, said, wrong = run(home, "demo", "--size", "1000", "-o", "shown")
    assert (code, wrong) == (0, "")
    assert "Device:     cpu (--device cuda takes a GPU), compiled by Numba\n" in said
    assert float(re.search(r"True error: (\S+) ", said)[1]) < 1e-8
    assert "Verdict:    confirmed. " in said
    assert re.search(r"found \(recall (100|99\.\d+) %\)", said)
    assert {path.name for path in (home[0] / "shown").iterdir()} == {"result.npz", "demo.png"}
    code, said, wrong = run(home, "demo", "--rank", "none")
    assert (code, said) == (2, "")
    assert "'--rank': 'none' is not a valid integer range." in wrong


def test_the_demo_without_numba_says_what_would_make_it_faster(home):
    hidden = "import sys; sys.modules['numba'] = None\nfrom rcurc_gpu.cli import main; main()"
    code, said, _ = run(home, code=f"import sys; sys.argv = ['x', 'demo', '--size', '300', '-o', 'plain']\n{hidden}")
    assert code in (0, 1)
    assert "plain NumPy; pip install 'rcurc-gpu[fast]' (Numba) makes most solves several times as fast\n" in said


def test_a_wide_csv(home, levels):
    seen, truth = levels
    seen.to_csv(home[0] / "wide.csv")
    (home[0] / "wanted.csv").write_text("site,column\nsite 3,day 7\nsite 9,day 99\n")
    code, said, wrong = run(
        home, "complete", "wide.csv", "-o", "wide.npz", "--predict", "wanted.csv", "--outliers", "wrong.csv"
    )
    assert (code, wrong) == (0, ""), said
    assert "a matrix in text with labels of rows ('site') and columns" in said
    assert "Verdict:    confirmed. " in said
    assert "1 has a label that is not in the observations; left empty" in said
    found = pd.read_csv(home[0] / "wide-predictions.csv")
    assert list(found.columns) == ["site", "column", "value", "expected_error", "lower", "upper"]
    assert abs(found["value"][0] - truth.loc["site 3", "day 7"]) < 0.15
    assert found["value"].isna().tolist() == [False, True]
    glitches = pd.read_csv(home[0] / "wrong.csv")
    assert (glitches["observed"] == -99).sum() == (seen == -99).to_numpy().sum()
    code, said, wrong = run(home, "complete", "wde.csv", "-o", "x.npz")
    assert (code, said, wrong) == (2, "", "Error: no such file: 'wde.csv'\n")


def test_a_long_csv(home, levels):
    seen, truth = levels
    long = seen.stack().rename("level").reset_index().sample(frac=1, random_state=0)
    long.to_csv(home[0] / "long.csv", index=False)
    (home[0] / "pairs.csv").write_text("site,day\nsite 3,day 7\n")
    code, said, wrong = run(home, "complete", "long.csv", "-o", "long.npz", "--predict", "pairs.csv")
    assert (code, wrong) == (0, ""), said
    assert "a list in text with the columns 'site', 'day', 'level'" in said
    found = pd.read_csv(home[0] / "long-predictions.csv")
    assert list(found.columns) == ["site", "day", "level", "expected_error", "lower", "upper"]
    assert abs(found["level"][0] - truth.loc["site 3", "day 7"]) < 0.15
    assert found["lower"][0] < truth.loc["site 3", "day 7"] < found["upper"][0]
    code, said, wrong = run(home, "complete", "long.csv", "-o", "x.npz", "--value-column", "levle")
    assert (code, said) == (2, "")
    assert wrong.startswith("Error: 'long.csv' has no column 'levle'")
    assert wrong.count("\n") == 1


def test_a_data_frame(home, levels):
    seen, truth = levels
    seen.to_pickle(home[0] / "frame.pkl")
    code = """
import json
import pandas as pd
import rcurc_gpu as rg

seen = pd.read_pickle("frame.pkl")
done = rg.complete(seen)
assert done.table.index.equals(seen.index) and done.table.columns.equals(seen.columns)
said = {"table": done.table.to_numpy().tolist(), "wrong": len(done.outliers), "good": done.converged, "text": repr(done)}
try:
    rg.complete(seen.reset_index())
except TypeError as error:
    said["error"] = str(error)
print(json.dumps(said))
"""
    status, said, wrong = run(home, code=code)
    assert status == 0, wrong
    found = json.loads(said)
    assert found["good"] is True
    assert found["text"].startswith("CompletedTable: confirmed\n  Converged; ")
    off = np.abs(np.asarray(found["table"]) - truth.to_numpy())
    assert np.median(off) < 0.1
    assert off.max() < 1
    assert found["wrong"] >= (seen == -99).to_numpy().sum()
    assert found["error"].startswith("data must hold numbers, but its column 'site' has 'site 0'; leave the column out, or ")
    assert "data.set_index('site')" in found["error"]


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
def test_a_notebook(home, levels, monkeypatch):
    import nbformat
    from nbclient import NotebookClient

    monkeypatch.setenv("NUMBA_CACHE_DIR", str(home[0] / "cache"))
    levels[0].to_pickle(home[0] / "frame.pkl")
    cells = (
        "import pandas as pd\nimport rcurc_gpu as rg\nseen = pd.read_pickle('frame.pkl')",
        "done = rg.complete(seen)\ndone",
        "done.result.cur",
        "rg.complete(seen, rank=100)",
    )
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(text) for text in cells])
    book.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    NotebookClient(book, timeout=600, allow_errors=True, resources={"metadata": {"path": str(home[0])}}).execute()
    completed, matrix, mistake = (cell.outputs[-1] for cell in book.cells[1:])
    assert completed["data"]["text/html"].startswith("<div><b>CompletedTable</b>")
    assert "confirmed" in completed["data"]["text/html"]
    assert "<b>CURMatrix</b>" in matrix["data"]["text/html"]
    assert mistake["output_type"] == "error"
    assert "rank must be" in mistake["evalue"]
