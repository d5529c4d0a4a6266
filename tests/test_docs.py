"""What the documentation shows is run as it stands, and what it links to is there."""

import doctest
import inspect
import json
import os
import re
import subprocess
import sys
from functools import reduce
from pathlib import Path

import pytest

import rcurc_gpu as rg

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
TEXTS = {path.name: path.read_text(encoding="utf-8") for path in DOCS.glob("*.md")}
PAGES = {name: re.findall(r"```python\n(.*?)```", text, re.DOTALL) for name, text in TEXTS.items()}
SCRIPT = "large.md"  # starts processes, which read the file that they come from
# README and the tutorial on videos have lines of their own making
NARROW = sorted(PAGES.keys() - {"video.md"})
LISTED = re.findall(r"^   ([\w.]+)$", TEXTS["api.md"], re.MULTILINE)


def public(name):
    return reduce(getattr, name.split("."), rg)


EXAMPLES = [name for name in LISTED if inspect.isfunction(public(name)) or name == "RobustCURCompletion"]


def test_there_is_something_to_run():
    assert sum(map(len, PAGES.values())) >= 12
    assert len(EXAMPLES) >= 40


@pytest.mark.parametrize("page", sorted(name for name, blocks in PAGES.items() if blocks and name != SCRIPT))
def test_python_blocks_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "__main__"}
    for code in PAGES[page]:
        exec(compile(code, page, "exec"), names)


def test_the_page_on_large_data_is_a_script(tmp_path):
    script = tmp_path / "large.py"
    script.write_text("\n\n".join(PAGES[SCRIPT]), encoding="utf-8")
    environment = os.environ | {"PYTHONPATH": str(ROOT)}  # workers are new processes, in another folder
    done = subprocess.run(
        [sys.executable, script], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert "Converged" in done.stdout
    *_, error, factor = done.stdout.strip().splitlines()
    assert float(error) < 1e-8
    assert factor.startswith("dask.array<")


# ---------------------------------------------------------------- a page for each name


def test_every_public_name_has_a_page():
    assert len(set(LISTED)) == len(LISTED)
    assert {*rg.__all__, "RobustCURCompletion"} - set(LISTED) == {"__version__"}
    assert all(hasattr(public(name), "__doc__") for name in LISTED)


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_function_has_an_example_that_runs(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    examples = doctest.DocTestParser().get_doctest(inspect.getdoc(public(name)), {}, name, None, None)
    assert examples.examples, "no example"
    assert any(name.rpartition(".")[2] in example.source for example in examples.examples)
    assert max(len(line) for e in examples.examples for line in (e.source + e.want).splitlines()) <= 88
    said = []
    doctest.DocTestRunner().run(examples, out=said.append)
    assert not said, "".join(said)


# ---------------------------------------------------------------- how it looks, and where it leads


@pytest.mark.parametrize("page", NARROW)
def test_code_is_readable_on_a_phone(page):
    blocks = re.findall(r"^```.*?\n(.*?)^```", TEXTS[page], re.DOTALL | re.MULTILINE)
    assert [line for block in blocks for line in block.splitlines() if len(line) > 88] == []


@pytest.mark.parametrize("notebook", sorted(path.name for path in DOCS.glob("*.ipynb")))
def test_code_of_notebooks_is_readable_too(notebook):
    cells = json.loads((DOCS / notebook).read_text(encoding="utf-8"))["cells"]
    lines = [line for cell in cells if cell["cell_type"] == "code" for line in "".join(cell["source"]).splitlines()]
    assert [line for line in lines if len(line) > 88] == []


def contents(text):
    return "\n".join(re.findall(r"```{toctree}.*?\n\n(.*?)\n```", text, re.DOTALL)).split()


def test_every_page_is_in_the_table_of_contents():
    pages = {path.stem for kind in ("md", "ipynb") for path in DOCS.glob(f"*.{kind}")}
    assert sorted(contents(TEXTS["index.md"]) + contents(TEXTS["gallery.md"])) == sorted(pages - {"index"})


def anchors(text):
    """Those that headings of Markdown get."""
    headings = re.findall(r"^#+ +(.*)$", re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("path", [*ROOT.glob("*.md"), *DOCS.glob("*.md"), *DOCS.glob("*.ipynb")], ids=lambda path: path.name)
def test_links_lead_somewhere(path):
    text = re.sub(r"```.*?```|`[^`\n]*`", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if target.startswith(("https://", "mailto:")):
            continue
        name, _, anchor = target.partition("#")
        there = path.parent / name if name else path
        assert there.exists(), f"{path.name} leads to {target}"
        if anchor:
            assert anchor in anchors(there.read_text(encoding="utf-8")), f"{path.name} leads to {target}"


@pytest.mark.parametrize("path", [*ROOT.glob("*.md"), *DOCS.glob("*.md"), *DOCS.glob("*.ipynb")], ids=lambda path: path.name)
def test_no_merge_is_left_half_done(path):
    """Git's marks of a conflict; Sphinx shows them as text, and says nothing."""
    assert not re.search(r"^ *\"?(<{7}|>{7}) ", path.read_text(encoding="utf-8"), re.MULTILINE)
