"""The picture of a report that the manual opens with: docs/figures/report.png, of the demo's data.

    python reproduction/screenshot.py

It needs Chromium (in Debian: apt-get install chromium).
"""

from __future__ import annotations

import io
import shutil
import subprocess
import tempfile
from pathlib import Path

from PIL import Image

from capri import demo

PICTURE = Path(__file__).resolve().parent.parent / "docs" / "figures" / "report.png"
COLOURS = 64  # enough for text and two colours of points, and small


def main() -> None:
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if browser is None:
        raise SystemExit("no Chromium found; in Debian: apt-get install chromium")
    with tempfile.TemporaryDirectory() as folder:
        page, shot = Path(folder) / "report.html", Path(folder) / "report.png"
        demo.report().save(page)
        how = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--window-size=1280,900"]
        subprocess.run([browser, *how, f"--screenshot={shot}", page.as_uri()], check=True, capture_output=True)
        picture = Image.open(shot).convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE)
        content = io.BytesIO()
        picture.save(content, "PNG", optimize=True)
    PICTURE.write_bytes(content.getvalue())
    print(PICTURE)


if __name__ == "__main__":
    main()
