"""Settings of the manual."""

project = "capri"
author = "The capri developers"
extensions = ["myst_parser", "sphinx_gallery.gen_gallery"]
html_theme = "furo"
exclude_patterns = ["_build"]
myst_heading_anchors = 3
sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "gallery",
    "filename_pattern": r"plot_",
    "download_all_examples": False,
    "show_memory": False,
}
