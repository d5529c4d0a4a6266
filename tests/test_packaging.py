"""Packages are complete, and the CUDA sources are found, however the package was installed."""

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

import rcurc_gpu as rg
from rcurc_gpu.backends.cuda import sources
from rcurc_gpu.backends.plain.passes import LEAST_HELD

ROOT = Path(__file__).parents[1]
FILES = sorted(path.name for path in (ROOT / "kernels").iterdir() if path.suffix in (".cu", ".cuh"))
FOLDERS = ("rcurc_gpu", "kernels", "bench", "docs", "tests")
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
            assert f" {kernel}(" in text


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
    for path in (
        *ROOT.glob("*.md"),
        *(ROOT / name for name in ("pyproject.toml", "LICENSE", "MANIFEST.in", "CITATION.cff")),
    ):
        shutil.copy(path, there)
    for name in FOLDERS:
        shutil.copytree(ROOT / name, there / name, ignore=shutil.ignore_patterns("__pycache__", "_build", "functions"))
    return there


def _files(folder):
    """The files below a folder of the project, as names from its top."""
    return {str(path.relative_to(folder.parent)) for path in folder.rglob("*") if path.is_file()}


def _build(project, hook, out):
    """Call a hook of setuptools' build backend, which needs no network."""
    pytest.importorskip("setuptools", minversion="77")
    out.mkdir()
    printed = _python(f"from setuptools import build_meta; print(build_meta.{hook}({str(out)!r}))", project)
    return out / printed.strip().splitlines()[-1]


@pytest.mark.slow
def test_a_wheel_has_the_whole_package(project, tmp_path):
    wheel = _build(project, "build_wheel", tmp_path / "wheel")
    site = tmp_path / "site"
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        assert sorted(Path(n).name for n in names if n.startswith("rcurc_gpu/kernels/") and ".cu" in n) == FILES
        assert _files(project / "rcurc_gpu") <= names  # py.typed among them
        assert not any(n.startswith(("tests/", "docs/", "bench/")) for n in names)
        archive.extractall(site)
    for place in (site, wheel):  # unpacked, and as a zip file
        assert str(place) in _python(READ, tmp_path, place)


@pytest.mark.slow
def test_a_source_distribution_has_everything(project, tmp_path):
    with tarfile.open(_build(project, "build_sdist", tmp_path / "sdist")) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert sorted(Path(name).name for name in names if name.startswith("kernels/") and ".cu" in name) == FILES
    assert set().union(*(_files(project / name) for name in FOLDERS)) <= names
    assert {"README.md", "CHANGELOG.md", "CONTRIBUTING.md", "CITATION.cff", "LICENSE", "pyproject.toml"} <= names


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


def test_the_citation_has_this_version():
    assert f"\nversion: {rg.__version__}\n" in (ROOT / "CITATION.cff").read_text()
