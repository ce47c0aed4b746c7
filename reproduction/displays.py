"""The pictures of docs/displays.md, drawn by the code of that page.

    python reproduction/displays.py

Each picture shows the `display` that the code above it leaves.
"""

from __future__ import annotations

import doctest
import re
from pathlib import Path
from typing import Any

import matplotlib

DOCS = Path(__file__).resolve().parent.parent / "docs"
PICTURE = re.compile(r"^!\[.*?\]\((figures/\S+)\)$", re.MULTILINE)


def main() -> None:
    matplotlib.use("Agg")
    page = (DOCS / "displays.md").read_text(encoding="utf-8")
    known: dict[str, Any] = {}
    start = 0
    for picture in PICTURE.finditer(page):
        for example in doctest.DocTestParser().get_examples(page[start : picture.start()]):
            exec(compile(example.source, "docs/displays.md", "single"), known)
        print(known["display"].save(DOCS / picture[1]))
        start = picture.end()


if __name__ == "__main__":
    main()
