"""One progress bar: text in a terminal, HTML in a notebook."""

from __future__ import annotations

import functools
import html
import sys
from typing import Any


def new_bar(**options: Any) -> Any:
    """A bar of tqdm for where this runs, with tqdm's options and methods."""
    if not in_notebook():
        from tqdm import tqdm

        return tqdm(**options)
    return _notebook_bar()(**options)


def in_notebook() -> bool:
    """Whether a Jupyter kernel runs this: a shell that is not one, as in a terminal, has no kernel."""
    ipython = sys.modules.get("IPython")  # whoever runs a notebook has imported it
    return ipython is not None and getattr(ipython.get_ipython(), "kernel", None) is not None


@functools.cache
def _notebook_bar() -> Any:
    """The class, made when it is first needed: tqdm and IPython are imported then.

    tqdm's own notebook bar needs the package ipywidgets, warns where that is missing, and leaves nothing on a page that was
    saved or built from the notebook. A plain HTML element is drawn everywhere and stays.
    """
    from IPython.display import display
    from tqdm import tqdm

    class NotebookBar(tqdm):  # type: ignore[misc]
        def __init__(self, **options: Any) -> None:
            self._shown: Any = None
            super().__init__(**options, gui=True)  # gui: tqdm itself writes nothing
            if not self.delay:
                self.display()

        def display(self, *_: Any, **__: Any) -> None:
            """Show the state of the bar, where it was shown before."""
            self._show(*_pictured(self.format_dict, self.format_meter, self.disable))

        def close(self) -> None:
            """Show the last state, or nothing if the bar should not stay."""
            if self.disable:
                return
            super().close()
            if self._shown is not None and self.leave:
                self.display()
            elif self._shown is not None:
                self._show("", "")

        def _show(self, page: str, text: str) -> None:
            data = {"text/html": page, "text/plain": text}
            if self._shown is None:
                self._shown = display(data, raw=True, display_id=True)
            else:
                self._shown.update(data, raw=True)

    return NotebookBar


def _pictured(state: dict[str, Any], words: Any, ended: bool) -> tuple[str, str]:
    """A bar as HTML and as text, from tqdm's state and its function that words it."""
    if state["total"]:
        form = "{desc}: {percentage:.0f} % of {total_fmt} [{elapsed}<{remaining}, {rate_fmt}{postfix}]"
        state = state | {"bar_format": form}
        value = f'value="{min(state["n"] / state["total"], 1):.3f}"'
    else:
        value = 'value="1"' if ended else ""  # of unknown length: browsers draw a bar that moves
    text = words(**state)
    return f'<div><progress {value} max="1"></progress> <code>{html.escape(text)}</code></div>', text
