"""The command ``rcurc-gpu``. The only place of the library that prints."""

from typing import TYPE_CHECKING

from .._lazy import later
from .stopping import STOPPED, STOPPED_EARLY

if TYPE_CHECKING:
    from .group import main

__all__ = ["main", "run"]

__getattr__ = later(__name__, {"main": ".group"})


def run() -> None:
    """Run the command. Nothing is imported before, so that Ctrl-C ends it in one line however early it comes."""
    import sys

    try:
        from .group import main

        main()
    except KeyboardInterrupt:
        sys.stderr.write(STOPPED_EARLY)
        raise SystemExit(STOPPED) from None
