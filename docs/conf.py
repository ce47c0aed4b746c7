"""Settings of the manual."""

import re
from importlib.metadata import version as version_of

project = "capri"
author = "The capri developers"
version = release = version_of("capriors")

# Napoleon reads numpydoc sections and is kept by Sphinx itself: nothing further to install, or to keep in step.
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "sphinx_gallery.gen_gallery",
]
# Docstrings write types as people do: "sequence of labels" is no reference to one of the attributes of that name.
suppress_warnings = ["ref.python"]
templates_path = ["_templates"]
exclude_patterns = ["_build"]
default_role = "code"  # docstrings write `name`
html_theme = "furo"
html_title = f"capri {release}"
myst_heading_anchors = 3

autosummary_ignore_module_all = False
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_type_aliases = {"ArrayLike": "ArrayLike"}  # rather than all that NumPy takes for an array
autodoc_preserve_defaults = True
python_maximum_signature_line_length = 88
napoleon_google_docstring = False
napoleon_use_rtype = False

sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "gallery",
    "filename_pattern": r"plot_",
    "download_all_examples": False,
    "show_memory": False,
}


#: What Sphinx makes of types and defaults, and how people write them.
_SPELLINGS = {
    r"[~\w.]*TypeAliasForwardRef\('(\w+)'\)": r"\1",
    r"[~\w.]*ndarray\[tuple\[[~\w.]+, \.\.\.\], [~\w.]+\[([~\w.]+)\]\]": r"NDArray[\1]",
    r"<factory>": "...",
}


def _shorten(app, what, name, obj, options, signature, returned):
    """Signatures that fit on a line or two."""
    texts = [signature, returned]
    for long, short in _SPELLINGS.items():
        texts = [text and re.sub(long, short, text) for text in texts]
    return tuple(texts)


def _leave_out_routing(app, what, name, obj, skip, options):
    """scikit-learn writes methods such as set_fit_request into every estimator; its own manual describes them."""
    return True if name.startswith("set_") and name.endswith("_request") else None


def setup(app):
    app.connect("autodoc-process-signature", _shorten)
    app.connect("autodoc-skip-member", _leave_out_routing)
