"""Some of `bench.fuzz`: readers and constructors on spoilt input raise nothing but the errors that are documented."""

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1]))  # where bench is, if pytest was started elsewhere

from bench.fuzz import CONSTRUCTORS, READERS, fuzz_constructor, fuzz_reader

SLOW = {"checkpoint.npz": 25}  # a solve for each


@pytest.mark.parametrize("name", READERS)
def test_spoilt_files(name):
    fuzz_reader(name, SLOW.get(name, 120))


@pytest.mark.parametrize("name", CONSTRUCTORS)
def test_constructors_on_anything(name):
    fuzz_constructor(name, 120)
