"""``pytest bench/``: the option for the paper's sizes, and what the header says about what is timed."""

import os
import platform

import numpy as np

import rcurc_gpu as rg


def pytest_addoption(parser):
    parser.addoption("--full", action="store_true", help="bench: up to d = 10,000 and 1e8 observations (some minutes more)")


def pytest_report_header(config):
    return [
        f"rcurc-gpu {rg.__version__}, numpy {np.__version__}, {os.cpu_count()} cores, {platform.machine()}",
        "timed: a whole solve from samples in memory, nothing known from an earlier one",
        "not timed: making the problem, and a first solve of each backend, which compiles (extra_info: first_call_seconds)",
    ]
