"""How Sphinx builds the site: ``sphinx-build -n -W -b html docs docs/_build``."""

from rcurc_gpu import __version__

project = "rcurc-gpu"
author = "The rcurc-gpu developers"
copyright = author
release = __version__

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "numpydoc",
    "sphinx_copybutton",
]
myst_enable_extensions = ["colon_fence", "dollarmath"]
myst_heading_anchors = 3
exclude_patterns = ["_build", "templates"]

# Notebooks are kept without outputs and run when the site is built: what readers see is
# what the library does today, no path or name of somebody's machine is ever committed,
# and changes of a notebook can be read. An error in a cell ends the build.
# While you write other pages, -D nb_execution_mode=off saves the time.
nb_execution_mode = "auto"
nb_execution_raise_on_error = True
nb_execution_timeout = 600
nb_merge_streams = True

# A page for each public name, from its docstring.
autosummary_generate = True
templates_path = ["templates"]
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False
autodoc_member_order = "bysource"
autodoc_typehints = "none"  # the docstrings have types, with shapes
copybutton_prompt_text = r">>> |\.\.\. "
copybutton_prompt_is_regexp = True
copybutton_only_copy_prompt_lines = False

html_theme = "furo"
html_title = "rcurc-gpu"
html_static_path = ["static"]
html_css_files = ["site.css"]


def setup(app):
    """Docstrings have |I| for a number of rows: in reStructuredText, a substitution."""

    def show_bars(app, what, name, obj, options, lines):
        lines[:] = [
            line.replace("|I|", "\u2223I\u2223").replace("|J|", "\u2223J\u2223")
            for line in lines
        ]

    app.connect("autodoc-process-docstring", show_bars, priority=900)
