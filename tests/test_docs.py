"""What the documentation shows is run as it stands: the Python blocks of a page one after the other."""

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[1] / "docs"
PAGES = {
    path.name: re.findall(r"```python\n(.*?)```", path.read_text(encoding="utf-8"), re.DOTALL) for path in DOCS.glob("*.md")
}


def test_there_is_something_to_run():
    assert sum(map(len, PAGES.values())) >= 12


@pytest.mark.parametrize("page", sorted(name for name, blocks in PAGES.items() if blocks))
def test_python_blocks_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "__main__"}
    for code in PAGES[page]:
        exec(compile(code, page, "exec"), names)


def test_every_page_is_in_the_table_of_contents():
    listed = re.findall(r"```{toctree}.*?\n\n(.*?)\n```", (DOCS / "index.md").read_text(encoding="utf-8"), re.DOTALL)
    assert sorted("\n".join(listed).split()) == sorted(path.stem for path in DOCS.glob("*.md") if path.stem != "index")
