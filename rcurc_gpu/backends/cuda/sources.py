"""The text of the CUDA sources, and how they are compiled; needs neither CuPy nor a device."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ..plain.regression import HALVINGS, LEAST_HELD, PART, RIDGE, TIGHT
from .rules import rules

MOST_RANK = 32  # a lane of a warp for each unknown
LONG = 1024  # entries from which all warps of a block take a unit; see team.cuh
MOST_WIDTH = 40  # columns of the core's factors at that rank: `operators.sketch_width`
PANEL_BYTES = 20 << 10  # of a panel of a sketch in shared memory: it and its basis have to fit into 48 KiB

# Each file, the macro that its size is given with (None: it has none), and its kernels.
KERNELS: dict[str, tuple[str | None, tuple[str, ...]]] = {
    "regress.cu": ("RANK", ("regress",)),
    "posterior.cu": ("RANK", ("posterior",)),
    "paper.cu": ("RANK", ("advance",)),
    "core.cu": (
        "WIDTH",
        (
            *("threshold", "inlying", "tally", "count_columns", "multiply", "multiply_columns"),
            *("floor_threshold", "change", "record", "note", "scale"),
        ),
    ),
    "blocks.cu": (
        None,
        (
            *("count_wanted", "take_wanted", "take_residuals", "join_rows", "count_places", "exchange"),
            *("count_union", "take_union", "fingerprint", "largest_sizes"),
        ),
    ),
    "layout.cu": (None, ("survey", "lay_out")),
    "verdicts.cu": (None, ("diagnose", "judge", "pick_units", "undetermined", "crowded", "most_outliers", "summarise")),
    "evidence.cu": ("RANK", ("measure", "compare", "count_larger", "sizes", "largest_squares", "basis_facts")),
    "votes.cu": (None, ("held_out", "agree", "count_votes", "take_rejected", "split_few")),
    "ties.cu": ("RANK", ("grams", "invert", "lone")),
    "lanczos.cu": ("RANK", ("couple", "gauge", "project", "append")),
    "sketch.cu": ("WIDTH", ("orthonormalise", "combine", "rotate")),
    "svd.cu": ("WIDTH", ("small_svd",)),
    "elementwise.cu": (None, ("threshold_each", "union_each")),
}

_INCLUDE = re.compile(r'^#include "([\w.]+)"$', re.MULTILINE)


def folder() -> Any:
    """Where the sources are: the package `rcurc_gpu.kernels`, or `kernels` beside this package in a bare checkout."""
    if find_spec("rcurc_gpu.kernels") is not None:
        return files("rcurc_gpu.kernels")
    return Path(__file__).parents[3] / "kernels"


@cache
def source(name: str) -> str:
    """The text of a file of `kernels`, with its headers in place of the includes.

    One text needs no directory of headers at run time, be the package a directory or a zip file, and CuPy's cache of
    compiled kernels sees every change of a header.
    """
    seen: set[str] = set()

    def expand(name: str) -> str:
        if name in seen:
            return ""
        seen.add(name)
        if name == "rules.cuh":  # there is no such file: the rules are written in Python
            return rules()
        text = folder().joinpath(name).read_text(encoding="utf-8")
        return _INCLUDE.sub(lambda match: expand(match[1]), text.replace("#pragma once\n", ""))

    return expand(name)


def options(name: str, dtype: str, size: int) -> tuple[str, ...]:
    """Compiler options for a file, a dtype by its name, and a rank or width (0 where there is none)."""
    macro = KERNELS[name][0]
    real = {"float32": "float", "float64": "double"}[dtype]
    constants = {
        "PART": PART,
        "HALVINGS": HALVINGS,
        "TIGHT": TIGHT,
        "RIDGE": RIDGE,
        "LEAST_HELD": LEAST_HELD,
        "LONG": LONG,
        "PANEL_BYTES": PANEL_BYTES,
    }
    given = [f"-DGIVEN_{name}={value}" for name, value in constants.items()]
    # the rules have to say of a unit what the CPU says: no product is added before it is rounded
    exact = ["--fmad=false"] if name == "verdicts.cu" else []
    return ("--std=c++17", *exact, f"-DREAL={real}", *given, *([] if macro is None else [f"-D{macro}={size}"]))
