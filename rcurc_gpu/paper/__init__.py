"""The experiments of the paper, and one that it does not have.

In each module of a figure ``compute`` makes a record, a dictionary that goes to JSON and back, ``summarize`` says what it
shows, ``words`` tells that, ``is_good`` says whether it is what it should be, and ``draw`` makes a Figure of it. What
measures anything can be interrupted and taken up again; see `records`.
"""

from .._lazy import later
from .records import Record, differences, new_record, read_record, rounded, write_record

__all__ = ["convergence", "patterns", "phase", "records", "table1"]
# Of records:
__all__ += ["Record", "differences", "new_record", "read_record", "rounded", "write_record"]

__getattr__ = later(__name__, {}, ("convergence", "patterns", "phase", "table1"))  # they load when they are touched
