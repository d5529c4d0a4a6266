"""What the README shows is run as it stands."""

import re
from pathlib import Path

import pytest

README = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)


def test_there_is_something_to_run():
    assert len(BLOCKS) >= 3


@pytest.mark.parametrize("code", BLOCKS, ids=range(len(BLOCKS)))
def test_python_blocks_run(code, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names = {}
    exec(compile(code, "README.md", "exec"), names)
    assert names["result" if "result" in names else "done"].converged
    if "done" in names:
        assert set(names["done"].outliers["observed"]) == {-99}
        assert names["done"].table.index.equals(names["levels"].index)
    if "problem" in names:
        assert names["problem"].relative_error(names["result"].cur) < 1e-9
    if "masked" in names:
        error = abs(names["result"].cur.to_dense() - names["X"]).max()
        assert error < 1e-6
        assert abs(names["new"].matrix.to_dense() - names["X"][:, :10]).max() < 1e-6
        assert "observations of a 500 x 400 matrix" in capsys.readouterr().out
    if "table" in names:
        wrong = (names["table"] == -99).nonzero()
        assert names["result"].rank == 2
        assert names["wrong"].nnz <= 1.01 * len(wrong[0])  # of 48,000 observations a few are far off by chance
        assert (names["wrong"].toarray()[wrong] != 0).all()
