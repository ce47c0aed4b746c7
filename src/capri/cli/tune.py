"""`capri tune`: scores and labels in, a policy out."""

from __future__ import annotations

import textwrap
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

from capri._checks import InputError
from capri.cli import display, options
from capri.cli.classes import class_table
from capri.cli.display import ClassRow
from capri.cli.inputs import Samples, Stream, further_scores
from capri.cli.messages import spoken_warnings
from capri.cli.progress import progress
from capri.cli.report import check_page, page_of
from capri.cli.tables import check_output, check_stdin, write_bytes

if TYPE_CHECKING:
    from capri.posthoc import LogitAdjuster

EXAMPLES = """
**Examples**

    capri tune val.npz --objective cvar:0.2 -o policy.json

    capri tune val.csv --label-column species --proba --class-counts 900,90,10 -o policy.json

    capri tune val.npy --labels y.npy --objective weighted --weights importance.csv -o policy.json

    capri tune val.npz --objective worst --constraint "plain <= baseline + 0.01" -o policy.json

    capri tune val.npz --constraint "recall[*] >= 0.5" --guarantee 0.95 -o policy.json

    capri tune val.npz --objective worst --reject 0.1 --min-coverage 0.7 -o policy.json

    capri tune scores/ --memory 2GB -o policy.json

**Files.** In .npz and .safetensors, `scores`, `logits` or `proba` (also after `val_`) with `y` or `labels`, and where
present `class_names`, `train_counts`, and the attributes `norm` and `noise`. In .csv and .parquet, columns
`score_<class>` (or all but the label) and `label` or `y`; in .parquet also a column `scores` or `logits` of lists. A
folder is read as its .parquet files. Labels are class names, or positions from 0. Pickles are refused.

**Exit codes.** 0: done; so too where no adjustment meets the constraints, with a warning on stderr and the one that
violates them least. 2: the input cannot be used; one line on stderr says why, and no file is written.
"""

Output = Annotated[
    Path | None,
    typer.Option(
        "--output", "-o", metavar="FILE", rich_help_panel=options.OUTPUT, help="Where to write the policy (.json)."
    ),
]
Page = Annotated[
    Path | None,
    typer.Option(
        "--report",
        metavar="FILE",
        rich_help_panel=options.OUTPUT,
        help="Where to write a page of what it changes (.html), with class errors out of fold.",
    ),
]


Memory = Annotated[
    str | None,
    typer.Option(
        metavar="SIZE",
        rich_help_panel=options.INPUT,
        help="What tuning may take, such as `2GB`: where scores do not fit, a sample of them tunes, and every row is "
        "counted. Without it, all are read into memory.",
    ),
]


@options.with_given
def tune(
    scores: options.ScoresFile,
    objective: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            rich_help_panel=options.TUNING,
            help="What to lower: `balanced`, `cvar:0.2`, `quantile:0.2`, `worst`, `weighted`, `sdev`, `mix:0.5`, "
            "`macro_f1`, …, or a sum such as `0.5*balanced+0.5*worst`.",
        ),
    ] = "balanced",
    output: Output = None,
    report: Page = None,
    method: options.Method = "cap",
    pooling: options.Pooling = "auto",
    borrow: options.Borrow = 20.0,
    unlabelled: options.Unlabelled = None,
    unlabelled_key: options.UnlabelledKey = None,
    constraint: options.Constraints = None,
    guarantee: options.Guarantee = None,
    reject: options.Reject = None,
    min_coverage: options.MinCoverage = None,
    attributes: options.Attributes = "auto",
    class_attributes: options.AttributeFile = None,
    parameters: options.Parameters = "l",
    memory: Memory = None,
    seed: options.Seed = 0,
    proba: options.Proba = False,
    given: options.Given = options.NOTHING,
    as_json: options.Json = False,
) -> None:
    """Tune a trained classifier's decisions for the objective that matters.

    Reads the scores that a model gives to **validation** samples (not those it was trained on) and their labels, finds
    the class offsets that lower the objective, and writes them as a policy: a small JSON file for `capri apply`,
    `capri.Policy.load` or `capri fold`. Where labels are few, the model's own calibrated probabilities help to tell
    class errors; `--borrow 0` goes by the labels alone, and is then never worse on them than the unadjusted model.
    """
    if output is not None:
        check_output(output, [".json"], scores, unlabelled, class_attributes, *given.files)
    if report is not None:
        check_page(report, scores, output, unlabelled, class_attributes, *given.files)
    others = {"--labels": given.labels, "--unlabelled": unlabelled, "--class-attributes": class_attributes}
    check_stdin({"SCORES": scores, **others})
    how: dict[str, Any] = {"pooling": pooling, "borrow": borrow, "attributes": attributes, "parameters": parameters}
    settings = options.read_settings(given, method=method, constraint=constraint, seed=seed, proba=proba, **how)
    settings |= {"objective": options.read_objective(objective, **given.has)}
    settings |= options.read_reject(reject, min_coverage)
    if reject is not None and settings["constraints"]:
        raise InputError("--reject cannot be given beside --constraint; write --reject 'until <constraint>'.")
    if reject is not None and (guarantee is not None or memory is not None):
        raise InputError("--reject cannot be given beside --guarantee or --memory.")
    settings |= {"guarantee": options.read_guarantee(guarantee, settings["constraints"])}
    if memory is not None:
        check_memory(memory)
        if guarantee is not None:
            raise InputError(
                "--guarantee cannot be given beside --memory: the samples that tune and test are in memory."
            )
    with spoken_warnings():
        samples = given.read(scores) if memory is None else given.stream(scores)
        settings |= given.context(samples.classes) | {"target_shares": given.shares(samples.classes)}
        extra = {} if class_attributes is None else class_table(class_attributes, samples.classes)
        further = None if unlabelled is None else further_scores(given.source(unlabelled, unlabelled_key), samples)
        adjuster = _fit(samples, settings, {**samples.attributes, **extra}, further, memory)
    if output is not None:
        write_bytes(output, adjuster.policy_.to_json().encode())
    if report is not None:
        found = adjuster.report_.content
        write_bytes(report, page_of(replace(found, facts={"samples that tuned, from": samples.origin, **found.facts})))
    (_print_json if as_json else _print)(adjuster, samples, output, report)


def check_memory(memory: str) -> None:
    """Refuse a budget that is none before any data are loaded."""
    from capri.posthoc.streaming import as_bytes

    as_bytes(memory)


def _fit(
    samples: Samples | Stream,
    settings: dict[str, Any],
    attributes: dict[str, NDArray[np.float64]],
    unlabelled: NDArray[Any] | None,
    memory: str | None,
) -> LogitAdjuster:
    from capri.posthoc import LogitAdjuster
    from capri.posthoc.heldout import FOLDS

    labels = samples.require_labels()
    adjuster = LogitAdjuster(classes=samples.classes.labels, **settings)
    known = {"class_counts": samples.class_counts, "class_attributes": attributes, "X_unlabelled": unlabelled}
    if isinstance(samples, Samples):
        with progress(f"tuning {adjuster.objective}", FOLDS) as advance:
            return adjuster.fit(samples.scores, labels, **known, on_progress=advance)
    n = samples.blocks.count()
    with progress(f"tuning {adjuster.objective}", 3 * n) as advance:  # rows are read, their folds judged, all counted
        watched = {"on_progress": lambda: advance(n / FOLDS), "on_rows": advance}
        return adjuster.fit(samples.labelled(), memory=memory, **known, **watched)


def _class_rows(adjuster: LogitAdjuster, samples: Samples | Stream) -> list[ClassRow]:
    found = adjuster.validation_
    counts = [None] * samples.n_classes if samples.class_counts is None else samples.class_counts.tolist()
    columns = (samples.classes.names, found.samples, counts, found.errors_before, found.errors_after)
    return [ClassRow(*row) for row in zip(*columns, strict=True)]


def _print(adjuster: LogitAdjuster, samples: Samples | Stream, output: Path | None, report: Path | None) -> None:
    from capri.validation import text

    display.tell(samples.describe())
    display.tell(f"tuned for {adjuster.validation_.objective} with {adjuster.method}: {adjuster.reason_}\n")
    display.tell(text(adjuster.validation_, display.width()))
    for said in (adjuster.promise_, adjuster.abstention_):
        if said is not None:
            display.tell("\n" + textwrap.fill(str(said), display.width()))
    display.tell(f"\nPolicy: {output}" if output else "\nNo policy was written; give -o policy.json to keep it.")
    if report:
        display.tell(f"Report: {report}")


def _print_json(adjuster: LogitAdjuster, samples: Samples | Stream, output: Path | None, report: Path | None) -> None:
    found, policy = adjuster.validation_, adjuster.policy_
    display.print_json(
        {
            "scores": samples.origin,
            "policy": None if output is None else str(output),
            "report": None if report is None else str(report),
            "objective": found.objective,
            "method": policy.method,
            "constraints": list(policy.constraints),
            "feasible": found.feasible,
            "reason": adjuster.reason_,
            "before": found.before,
            "after": found.after,
            "improvement": found.improvement,
            "interval": found.interval,
            "in_sample": found.in_sample,
            "path": adjuster.path_,
            "ladder": found.ladder,
            "limits": found.limits,
            "promise": policy.data.get("promise"),
            "abstention": policy.data.get("abstention"),
            "classes": display.class_json(_class_rows(adjuster, samples), after=True),
        }
    )
