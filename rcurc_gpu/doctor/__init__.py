"""The command ``rcurc-gpu doctor``: what is there, what is missing, and whether it computes right."""

from .probes import Machine, examine
from .run import choose_place, diagnose, machine_words
from .selftest import Place

__all__ = ["Machine", "Place", "choose_place", "diagnose", "examine", "machine_words"]
