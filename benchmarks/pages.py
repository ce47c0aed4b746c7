"""Tables of stored results, written into the pages that show them.

    python benchmarks/pages.py            # write them anew
    python benchmarks/pages.py --check    # say which are out of date, and fail

A page holds a command between markers; what the command prints stands below it:

    <!-- $ capri paper show balanced --format markdown -->
    …
    <!-- $ -->
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import sys
from pathlib import Path

from typer.testing import CliRunner

from capri.cli import _app as app

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
PATTERN = re.compile(r"(<!-- \$ capri (?P<command>[^\n]+?) -->\n).*?(<!-- \$ -->)", re.DOTALL)


def printed(command: str) -> str:
    """What a command of capri prints."""
    result = CliRunner().invoke(app, shlex.split(command), catch_exceptions=False)
    if result.exit_code:
        raise SystemExit(f"capri {command}: {result.output}")
    return result.output.strip()


def render(text: str) -> str:
    """A page with its tables as they are now."""
    return PATTERN.sub(lambda m: f"{m[1]}{printed(m['command'])}\n{m[3]}", text)


def main(check: bool) -> int:
    os.chdir(ROOT)
    stale = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        current = render(text)
        if current != text:
            stale.append(page.relative_to(ROOT))
            if not check:
                page.write_text(current, encoding="utf-8")
    for page in stale:
        print(f"{page} {'is out of date: run python benchmarks/pages.py' if check else 'written'}")
    return int(check and bool(stale))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    sys.exit(main(parser.parse_args().check))
