"""Tables and figures of stored results, written into the pages that show them.

    python reproduction/pages.py            # write them anew
    python reproduction/pages.py --check    # say which are out of date, and fail

A page holds a command between markers; what the command prints stands below it:

    <!-- $ capri paper show balanced --format markdown -->
    …
    <!-- $ -->

Commands of benchmarks, `python reproduction/benchmarks/….py`, will do as well.

Figures of the paper have a line that names the command, and docs/figures/drawn.json remembers from which results each
was drawn, since pictures themselves differ by the fonts of a machine:

    <!-- figure: capri paper show cvar --seeds 5 --out docs/figures/cvar.svg -->
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

from typer.testing import CliRunner

from capri.cli import commands
from capri_paper.cli import exhibits
from capri_paper.exhibits import Only
from capri_paper.store import Store

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
COMMAND = r"capri [^\n]+?|python reproduction/benchmarks/[^\n]+?"
PATTERN = re.compile(rf"(<!-- \$ (?P<command>{COMMAND}) -->\n).*?(<!-- \$ -->)", re.DOTALL)
FIGURE = re.compile(r"<!-- figure: capri (paper show (\S+) --seeds (\d+) --out (\S+)) -->")
DRAWN = ROOT / "docs" / "figures" / "drawn.json"


def printed(command: str) -> str:
    """What a command of capri or of a benchmark prints."""
    program, *arguments = shlex.split(command)
    if program == "python":
        done = subprocess.run([sys.executable, *arguments], cwd=ROOT, capture_output=True, encoding="utf-8")
        if done.returncode:
            raise SystemExit(f"{command}: {done.stderr}")
        return done.stdout.strip()
    result = CliRunner().invoke(commands, arguments)
    if result.exit_code:
        raise SystemExit(f"{command}: {result.output}{result.exception}")
    return result.stdout.strip()


def render(text: str) -> str:
    """A page with its tables as they are now."""
    return PATTERN.sub(lambda m: f"{m[1]}{printed(m['command'])}\n{m[3]}", text)


def changes(page: Path) -> bool:
    """Whether a page's tables are out of date."""
    text = page.read_text(encoding="utf-8")
    return render(text) != text


def write(page: Path) -> bool:
    """Write a page's tables anew; returns whether it has changed."""
    text = page.read_text(encoding="utf-8")
    current = render(text)
    if current != text:
        page.write_text(current, encoding="utf-8")
    return current != text


def source(name: str, seeds: int) -> str:
    """A digest of the stored results that a figure shows."""
    store = Store(ROOT / "reproduction" / "results", ROOT / "data", {})
    found = [store.find(unit) for unit in exhibits()[name].units(range(seeds), "cpu", Only.parse())]
    return hashlib.sha256(json.dumps(found, sort_keys=True).encode()).hexdigest()[:16]


def draw(pages: list[Path], check: bool) -> list[Path]:
    """Draw the figures whose results have changed; returns them."""
    drawn = json.loads(DRAWN.read_text(encoding="utf-8")) if DRAWN.exists() else {}
    now, stale = {}, []
    text = "\n".join(page.read_text(encoding="utf-8") for page in pages)
    if len(FIGURE.findall(text)) != text.count("<!-- figure:"):
        raise SystemExit("a figure's line is not of the form: figure: capri paper show NAME --seeds N --out PATH")
    for command, name, seeds, out in sorted(set(FIGURE.findall(text))):
        now[out] = source(name, int(seeds))
        if drawn.get(out) != now[out] or not (ROOT / out).exists():
            stale.append(Path(out))
            if not check:
                printed(f"capri {command}")
    if not check and now != drawn:
        DRAWN.write_text(json.dumps(now, indent=1) + "\n", encoding="utf-8")
    return stale


def main(check: bool) -> int:
    os.chdir(ROOT)
    stale = draw(PAGES, check)
    for page in PAGES:
        if changes(page) if check else write(page):
            stale.append(page.relative_to(ROOT))
    for page in stale:
        print(f"{page} {'is out of date: run python reproduction/pages.py' if check else 'written'}")
    return int(check and bool(stale))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    sys.exit(main(parser.parse_args().check))
