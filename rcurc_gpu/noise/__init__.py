"""The noise model: offsets, shrunk rows and columns, Student-t noise with outliers, and how sure all of it is."""

from .fit import fit_noise
from .model import Group, NoiseModel
from .part import Part
from .sweeps import NoiseForm

__all__ = ["Group", "NoiseForm", "NoiseModel", "Part", "fit_noise"]
