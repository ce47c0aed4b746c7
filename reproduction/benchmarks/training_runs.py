"""The table of reference runs in docs/training.md, from what the runs left behind.

    python reproduction/benchmarks/training_runs.py [reproduction/results/train/cifar10* …]

Reads each folder's summary.json, writes the table between the markers of the page and copies the learning curves to
docs/figures. It trains nothing; the commands that did are in the table.
"""

from __future__ import annotations

import argparse
import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from capri.train.config import Config, resolve
from capri.train.settings import build, differences

HERE = Path(__file__).resolve().parents[2]
PAGE, RESULTS = HERE / "docs" / "training.md", HERE / "reproduction" / "results"
BEGIN, END = "<!-- runs: written by reproduction/benchmarks/training_runs.py -->", "<!-- end of runs -->"
HEAD = (
    "| data | strategy | preset | balanced error | sdev | worst class | epochs | time | threads | seed | commit |",
    "| --- | --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | --- |",
)


def command(config: Config, folder: str) -> str:
    """What one types for this run: the preset and all that differs from it. Where the data lie is left out."""
    default, mine = resolve(preset=config.preset).to_mapping(), config.to_mapping()
    names = [n for n in differences(default, mine) if n not in ("out", "data.root")]
    sets = "".join(f" --set {name}={_text(_at(mine, name))}" for name in names)
    return f"capri train --preset {config.preset}{sets} --out {folder}"


def _at(mapping: Mapping[str, Any], name: str) -> Any:
    for part in name.split("."):
        mapping = mapping[part]
    return mapping


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))


def duration(seconds: float) -> str:
    minutes = round(seconds / 60)
    return f"{minutes // 60} h {minutes % 60:02d} min" if minutes >= 60 else f"{minutes} min"


def row(summary: Mapping[str, Any], config: Config) -> str:
    """One line of the table."""
    test = summary["test"]
    commit = summary["commit"] or "unknown"
    cells = [
        config.data.name,
        config.loss.strategy,
        config.preset,
        *(f"{100 * test[name]:.2f} %" for name in ("balanced", "sdev", "worst")),
        str(summary["epochs"]),
        duration(summary["seconds"]),
        str(summary["threads"]),
        str(config.seed),
        f"`{commit[:10]}`{' with changes' if commit.endswith('+changes') else ''}",
    ]
    return f"| {' | '.join(cells)} |"


def render(folders: Sequence[Path], page: Path = PAGE) -> str:
    """The section, and the curves copied beside the page."""
    rows, commands, figures = [], [], []
    for folder in folders:
        summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
        config = build(Config, summary["config"])
        rows.append(row(summary, config))
        commands.append(command(config, f"reproduction/results/train/{folder.name}"))
        figure = page.parent / "figures" / f"{folder.name}.png"
        figure.parent.mkdir(exist_ok=True)
        shutil.copyfile(folder / "curves.png", figure)
        title = f"{config.data.name}, {config.loss.strategy}, seed {config.seed}"
        figures.append(f"![Learning curves: {title}](figures/{figure.name})")
    return "\n".join([*HEAD, *rows, "", "```bash", *commands, "```", "", *figures])


def insert(text: str, section: str) -> str:
    """The page with the section between its markers."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise SystemExit(f"the page lacks the markers {BEGIN} and {END}")
    return f"{before}{BEGIN}\n\n{section}\n\n{END}{after}"


def main(folders: Sequence[Path], page: Path = PAGE) -> None:
    done = [folder for folder in folders if (folder / "summary.json").exists()]
    for folder in folders:
        if folder not in done:
            print(f"{folder}: no summary.json; the run has not ended, and is left out")
    if not done:
        raise SystemExit("no finished run; give folders that `capri train` wrote")
    page.write_text(insert(page.read_text(encoding="utf-8"), render(done, page)), encoding="utf-8")
    print(f"wrote {len(done)} run(s) to {page}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="*", type=Path, help="runs; by default all of CIFAR's")
    main(
        parser.parse_args().folders or sorted(f for f in RESULTS.glob("train/cifar*-seed*") if "features" not in f.name)
    )
