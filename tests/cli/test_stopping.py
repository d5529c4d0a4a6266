"""Ctrl-C ends the command in one line from its first moment on."""

import subprocess
import sys

import pytest

# Ctrl-C while a module is imported: the import itself raises what the signal would.
CODE = """
import sys

class Stop:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            raise KeyboardInterrupt

sys.meta_path.insert(0, Stop())
sys.argv[:] = ["rcurc-gpu", "demo", "--output", "out"]
from rcurc_gpu.cli import run
run()
"""


@pytest.mark.parametrize("module", ["click", "rcurc_gpu.cli.group", "numpy", "rcurc_gpu.cli.demo", "scipy", "rcurc_gpu.api"])
def test_ctrl_c_while_the_library_is_imported_is_no_traceback(module, tmp_path):
    code = CODE.format(module=module)
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert run.returncode == 130
    assert run.stderr == "\nStopped. Nothing was saved.\n"
    assert run.stdout == ""


def test_the_package_itself_imports_nothing_that_takes_time():
    slow = {"numpy", "scipy", "click", "tempfile", "shutil", "random", "lzma", "importlib.resources"}
    code = f"import sys; old = set(sys.modules); import rcurc_gpu.cli; print({slow} & (set(sys.modules) - old))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == "set()\n"
