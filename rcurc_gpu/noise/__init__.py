"""The noise model: offsets, shrunk rows and columns, Student-t noise with outliers, and how sure all of it is."""

from .fit import NoiseForm, fit_noise
from .model import Group, NoiseModel
from .part import Part

__all__ = ["Group", "NoiseForm", "NoiseModel", "Part", "fit_noise"]
