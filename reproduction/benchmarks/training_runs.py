"""The table of reference runs in docs/training.md, from the stored results of CIFAR's training runs.

    python reproduction/benchmarks/training_runs.py

Writes the table between the markers of the page, and copies the learning curves of runs that were done here to
docs/figures. It trains nothing; the commands that did are below the table.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from capri.train.config import Config, resolve
from capri.train.settings import differences
from capri_paper.resolved import as_config
from capri_paper.store import Store, Unit

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


def row(result: Mapping[str, Any], config: Config) -> str:
    """One line of the table."""
    test = result["test"]
    commit = result["commit"] or "unknown"
    cells = [
        config.data.name,
        config.loss.strategy,
        config.preset,
        *(f"{100 * test[name]:.2f} %" for name in ("balanced", "sdev", "worst")),
        str(config.trainer.max_epochs),
        duration(result["seconds"]),
        str(result["threads"]),
        str(config.seed),
        f"`{commit[:10]}`{' with changes' if commit.endswith('+changes') else ''}",
    ]
    return f"| {' | '.join(cells)} |"


def runs(store: Store) -> list[Mapping[str, Any]]:
    """Stored trainings of networks on images, on all training samples."""
    data = [(record, record["settings"]["run"]["data"]) for record in store.records("train").values()]
    return [record for record, of in data if of["name"].startswith("cifar") and not of["val_fraction"]]


def stem(label: str, config: Config) -> str:
    """A name of its own for each run: the label, which is of the data, the loss and the seed, and the schedule."""
    usual = resolve(preset=config.preset).trainer.max_epochs
    epochs = f"{config.trainer.max_epochs}-epochs" if config.trainer.max_epochs != usual else ""
    return "-".join(filter(None, [label, config.preset if config.preset != "cpu" else "", epochs]))


def render(store: Store, page: Path = PAGE) -> str:
    """The section, and the curves copied beside the page."""
    rows, commands, figures = [], [], []
    for record in runs(store):
        config, label = as_config(record["settings"]["run"]), record["label"]
        rows.append(row(record["result"], config))
        name = stem(label, config)
        commands.append(command(config, f"runs/{name}"))
        if config.seed:
            continue  # one picture tells what the others would
        figure = page.parent / "figures" / f"{name}.png"
        curves = store.folder(Unit("train", record["settings"], label)) / "curves.png"
        if curves.exists():
            figure.parent.mkdir(exist_ok=True)
            shutil.copyfile(curves, figure)
        title = f"{config.data.name}, {config.loss.strategy}, preset {config.preset}, seed {config.seed}"
        figures.append(f"![Learning curves: {title}](figures/{figure.name})")
    return "\n".join([*HEAD, *rows, "", "```bash", *commands, "```", "", *figures])


def insert(text: str, section: str) -> str:
    """The page with the section between its markers."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise SystemExit(f"the page lacks the markers {BEGIN} and {END}")
    return f"{before}{BEGIN}\n\n{section}\n\n{END}{after}"


def main(results: Path = RESULTS, page: Path = PAGE) -> None:
    store = Store(results, HERE / "data", {})
    if not runs(store):
        raise SystemExit(
            f"{results} holds no training run on CIFAR; capri paper run balanced --only method=ce does one"
        )
    page.write_text(insert(page.read_text(encoding="utf-8"), render(store, page)), encoding="utf-8")
    print(f"wrote {len(runs(store))} run(s) to {page}")


if __name__ == "__main__":
    main()
