"""The CUDA sources are found, however the package was installed."""

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from rcurc_gpu.backends.cuda import sources
from rcurc_gpu.backends.plain.passes import LEAST_HELD

ROOT = Path(__file__).parents[1]
FILES = sorted(path.name for path in (ROOT / "kernels").iterdir() if path.suffix in (".cu", ".cuh"))
READ = (
    "from rcurc_gpu.backends.cuda.sources import KERNELS, folder, source; "
    "print(sum(len(source(n)) for n in KERNELS), folder())"
)


def test_every_source_is_read_with_its_headers():
    for name in sources.KERNELS:
        text = sources.source(name)
        assert 'extern "C" __global__' in text
        assert "#include" not in text
        assert text.count("bool inlies(") == 1  # the mathematics of an entry comes from one header
        for kernel in sources.KERNELS[name][1]:
            assert f"    {kernel}(" in text


def test_options():
    given = sources.options("regress.cu", "float32", 5)
    assert given[:2] == ("--std=c++17", "-DREAL=float")
    assert given[-1] == "-DRANK=5"
    assert f"-DGIVEN_LEAST_HELD={LEAST_HELD}" in given  # constants of the method are written once, in Python
    assert not any("RANK" in option or "WIDTH" in option for option in sources.options("elementwise.cu", "float64", 0))


def _python(script, cwd, path=None):
    """What a script prints, run in a new process where only `path` leads to the package."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    environment |= {} if path is None else {"PYTHONPATH": str(path)}
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=cwd, env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A copy of what is needed to build, so that nothing is left behind in the checkout."""
    there = tmp_path_factory.mktemp("project")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, there)
    for name in ("rcurc_gpu", "kernels"):
        shutil.copytree(ROOT / name, there / name, ignore=shutil.ignore_patterns("__pycache__"))
    return there


def _build(project, hook, out):
    """Call a hook of setuptools' build backend, which needs no network."""
    pytest.importorskip("setuptools", minversion="77")
    out.mkdir()
    printed = _python(f"from setuptools import build_meta; print(build_meta.{hook}({str(out)!r}))", project)
    return out / printed.strip().splitlines()[-1]


@pytest.mark.slow
def test_a_wheel_has_the_sources(project, tmp_path):
    wheel = _build(project, "build_wheel", tmp_path / "wheel")
    site = tmp_path / "site"
    with zipfile.ZipFile(wheel) as archive:
        assert sorted(Path(n).name for n in archive.namelist() if n.startswith("rcurc_gpu/kernels/") and ".cu" in n) == FILES
        archive.extractall(site)
    for place in (site, wheel):  # unpacked, and as a zip file
        assert str(place) in _python(READ, tmp_path, place)


@pytest.mark.slow
def test_a_source_distribution_has_the_sources(project, tmp_path):
    with tarfile.open(_build(project, "build_sdist", tmp_path / "sdist")) as archive:
        names = [Path(name) for name in archive.getnames()]
    assert sorted(path.name for path in names if path.parent.name == "kernels" and ".cu" in path.name) == FILES


@pytest.mark.slow
def test_an_editable_install_finds_the_sources(project, tmp_path):
    wheel = _build(project, "build_editable", tmp_path / "editable")
    site = tmp_path / "site"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    # where .pth files count; and before a copy of the package that is installed already
    first = f"import site, sys; n = len(sys.meta_path); site.addsitedir({str(site)!r})"
    first += "; sys.meta_path = [*sys.meta_path[n:], *sys.meta_path[:n]]"
    printed = _python(f"{first}; {READ}", tmp_path)
    assert str(project / "kernels") in printed


def test_a_bare_checkout_finds_the_sources(tmp_path):
    assert str(ROOT / "kernels") in _python(READ, tmp_path, ROOT)
