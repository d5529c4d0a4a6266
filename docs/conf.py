"""How Sphinx builds the documentation: ``sphinx-build -W -b html docs docs/_build``."""

from rcurc_gpu import __version__

project = "rcurc-gpu"
author = "The rcurc-gpu developers"
copyright = author
release = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.autosummary", "numpydoc", "sphinx_copybutton"]
myst_enable_extensions = ["colon_fence", "dollarmath"]
myst_heading_anchors = 3
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False
autodoc_member_order = "bysource"
autodoc_typehints = "none"  # the docstrings have types, with shapes
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = "rcurc-gpu"


def setup(app):
    """Docstrings write the number of chosen rows as a formula, which reStructuredText takes for a substitution."""

    def show_bars(app, what, name, obj, options, lines):
        lines[:] = [line.replace("|I|", "\u2223I\u2223").replace("|J|", "\u2223J\u2223") for line in lines]

    app.connect("autodoc-process-docstring", show_bars, priority=900)
