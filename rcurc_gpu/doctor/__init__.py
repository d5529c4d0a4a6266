"""The command ``rcurc-gpu doctor``: what is there, what is missing, and whether it computes right."""

from .run import diagnose

__all__ = ["diagnose"]
