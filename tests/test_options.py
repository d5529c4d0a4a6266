"""Options stated once: what signatures, docstrings and checks take from the table."""

import inspect
import re
from dataclasses import fields

import pytest

import rcurc_gpu as rg
from rcurc_gpu.options import DOCUMENTATION, Settings, Where, option

SOLVERS = (rg.rcurc, rg.icurc, rg.robust_pca, rg.ircur, rg.RobustCURCompletion)
OWN = {(rg.ircur, "gamma"), (rg.ircur, "tol"), (rg.ircur, "max_iter")}  # other defaults, those of its authors


@pytest.mark.parametrize("solver", SOLVERS, ids=lambda solver: solver.__name__)
def test_every_parameter_is_described_once(solver):
    section = solver.__doc__.split("Parameters\n----------\n")[1].split("\n\n")[0]
    entries = re.findall(r"^(\w[\w, ]*) :", section, re.MULTILINE)
    names = [name for entry in entries for name in entry.split(", ")]
    own = [p.name for p in inspect.signature(solver).parameters.values() if p.kind is not p.VAR_KEYWORD]
    assert names[: len(own)] == own
    assert len(set(names)) == len(names)
    assert "As in" not in section


@pytest.mark.parametrize("solver", SOLVERS, ids=lambda solver: solver.__name__)
def test_defaults_are_those_of_the_table(solver):
    for name, parameter in inspect.signature(solver).parameters.items():
        known = parameter.default is not parameter.empty and (hasattr(Settings, name) or hasattr(Where, name))
        if known and (solver, name) not in OWN:
            assert parameter.default == option(name).default, name


def test_every_option_is_documented():
    assert {f.name for kind in (Settings, Where) for f in fields(kind)} <= set(DOCUMENTATION)
    assert option("rank").text == "Rank of the matrix."
    assert option("kernels").choices == ("auto", "xp", "fused")


def test_settings_are_checked_and_completed():
    settings = Settings.checked("float32", {"gamma": 0.5, "rank": 3, "seed": 7})
    assert (settings.gamma, settings.seed, settings.holdout, settings.tol) == (0.5, 7, 0.03, 1e-5**2)
    assert Settings.checked("float64", {"method": "paper"}).tol == 1e-6**2
    assert Settings.checked("float64", {"tol": 0.25}).scaled(2).tol == 0.25
    with pytest.raises(ValueError, match=re.escape("holdout must be in [0, 0.5], got 0.6")):
        Settings.checked("float64", {"holdout": 0.6})
