"""Settings of the manual."""

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
templates_path = ["_templates"]
exclude_patterns = ["_build"]
default_role = "code"  # docstrings write `name`
html_theme = "furo"
html_title = f"capri {release}"
myst_heading_anchors = 3

autosummary_ignore_module_all = False
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
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


def _leave_out_routing(app, what, name, obj, skip, options):
    """scikit-learn writes methods such as set_fit_request into every estimator; its own manual describes them."""
    return True if name.startswith("set_") and name.endswith("_request") else None


def setup(app):
    app.connect("autodoc-skip-member", _leave_out_routing)
