"""All tests run on the host device, which tests/conftest.py installs; another set-up needs a process of its own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import hostgpu

ROOT = Path(hostgpu.__file__).resolve().parents[1]


@pytest.fixture
def run_python():
    """Runs a script in a new process; returns (return code, its output)."""

    def run(script: str, **environment: str):
        path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
        done = subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "PYTHONPATH": path, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=300,
        )
        return done.returncode, done.stdout

    return run
