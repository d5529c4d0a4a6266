"""What a long solve has done so far, in a file: killed at any moment, the same call goes on from there.

A solve is a sequence of steps whose order follows from its arguments alone: cores at some rank, parts of a pass over all
columns or rows. Each leaves its outcome, or how far it got, under its number; a later run of the same solve finds it there
and does not compute it again. What is short is not kept but computed again, with the same outcome.
"""

from __future__ import annotations

import os
import time
import zlib
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from .. import files
from .._version import __version__
from ..backends.arrays import Array, device_name, to_numpy
from ..backends.kernels import choose
from ..errors import ArgumentError
from ..options import Settings
from ..samples.cross import CrossSamples

_WRITING = 20  # a file is written again after at least this many times the time that writing it took


class Step:
    """One step of a solve, and what is known of it."""

    def __init__(self, checkpoint: Checkpoint, name: str) -> None:
        self._checkpoint, self._name = checkpoint, name

    @property
    def saved(self) -> dict[str, np.ndarray] | None:
        """What an earlier run left, or None."""
        return self._checkpoint.steps.get(self._name)

    def save(self, arrays: dict[str, Any]) -> None:
        """Keep `arrays`, from any device, in the place of what was there; written when the time has come, or at the end."""
        self._checkpoint.put(self._name, arrays)


class Checkpoint:
    """The steps of one solve in a file.

    Parameters
    ----------
    path : str or path
    identity : dict of str
        What the solve is, by which the file of another one is told.
    every : float
        Seconds between two writes, at least.

    Raises
    ------
    ValueError
        If there is a file that is none of this solve; it is left as it is.
    """

    def __init__(self, path: str | os.PathLike[str], identity: dict[str, str], every: float) -> None:
        self.path, self.identity, self.every = Path(path), identity, every
        self.steps: dict[str, dict[str, Any]] = {}
        self.elapsed = 0.0  # of earlier runs
        self._count = 0
        self._started = self._written = time.monotonic()
        self._pause = every
        self._changed = False
        if self.path.exists():
            self._read()
        elif not self.path.absolute().parent.is_dir():
            raise FileNotFoundError(f"checkpoint must lie in a directory that exists, got {str(self.path)!r}")

    def step(self, name: str) -> Step:
        """The next step."""
        self._count += 1
        return Step(self, f"{self._count:06d} {name}")

    @property
    def due(self) -> bool:
        """Whether it is time to write."""
        return time.monotonic() - self._written >= self._pause

    def put(self, step: str, arrays: dict[str, Any]) -> None:
        """Keep what is known of a step, and write the file if the time has come."""
        self.steps[step] = arrays
        self._changed = True
        if self.due:
            self.close()

    def close(self) -> None:
        """Write what is not written yet; the file holds all of an earlier state, or all of this one."""
        if not self._changed:
            return
        begun = time.monotonic()
        for parts in self.steps.values():  # not before, so as not to wait for the device
            parts.update((name, to_numpy(x)) for name, x in parts.items() if not isinstance(x, np.ndarray))
        arrays = {f"{step}|{name}": x for step, parts in self.steps.items() for name, x in parts.items()}
        arrays |= {f"identity|{name}": np.asarray(value) for name, value in self.identity.items()}
        arrays["elapsed"] = np.asarray(self.elapsed + begun - self._started)
        files.write_npz(self.path, "checkpoint", arrays)
        self._written = time.monotonic()
        self._pause = max(self.every, _WRITING * (self._written - begun))
        self._changed = False

    def _read(self) -> None:
        arrays = files.read_npz(self.path, "checkpoint", ("elapsed",))
        self.elapsed = float(arrays.pop("elapsed"))
        found: dict[str, str] = {}
        for key, value in arrays.items():
            step, _, name = key.partition("|")
            if step == "identity":
                found[name] = str(value)
            else:
                self.steps.setdefault(step, {})[name] = value
        if found != self.identity:
            differ = sorted(k for k in found | self.identity if found.get(k) != self.identity.get(k))
            raise ArgumentError(
                "checkpoint",
                f"{str(self.path)!r} is of another solve: it differs in {', '.join(differ)}; choose another "
                "path, or delete the file if it is not needed",
            )


def identity_of(samples: CrossSamples, settings: dict[str, Any]) -> dict[str, str]:
    """What has to be the same for a solve to go on where another one ended."""
    blocks = (samples.r_block, samples.c_block)
    arrays = [samples.rows, samples.cols, *(x for block in blocks for x in (block.indptr, block.index, block.value))]
    sums = "-".join(f"{zlib.crc32(np.ascontiguousarray(to_numpy(x)).data):08x}" for x in arrays)
    return {name: repr(value) for name, value in settings.items()} | {
        "version": __version__,
        "samples": f"{samples.shape} {samples.dtype} {sums}",
    }


def seed_in_checkpoint(path: str | os.PathLike[str]) -> int:
    """The seed of the solve that left a file."""
    with np.load(path, allow_pickle=False) as file:
        return int(str(file["identity|seed"]))


def settings_identity(settings: Settings, rank: int | str, like: Array) -> dict[str, Any]:
    """The settings of a solve that computes where `like` is, as far as they change what is found."""
    known = {field.name: getattr(settings, field.name) for field in fields(settings)}
    del known["chunk_bytes"]
    return known | {
        "callback": settings.callback is not None,
        "rank": rank,
        "device": device_name(like),
        "kernels": choose(settings.kernels, like).name,
    }
