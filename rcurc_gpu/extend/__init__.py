"""Columns and rows outside of the core: each is a robust regression on the core's basis."""

from .diagnostics import OK, UnitDiagnostics

__all__ = ["OK", "UnitDiagnostics"]
