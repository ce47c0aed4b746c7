"""`capri tune`: scores and labels in, a policy out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

from capri._checks import InputError
from capri.cli import display, options
from capri.cli.classes import class_table
from capri.cli.display import ClassRow
from capri.cli.inputs import Samples, further_scores
from capri.cli.messages import spoken_warnings
from capri.cli.progress import progress
from capri.cli.tables import check_output, check_stdin, write_bytes

if TYPE_CHECKING:
    from capri.policy import Validation
    from capri.posthoc import LogitAdjuster

SHOWN = 5  # classes to show: the worst before and the worst after

EXAMPLES = """
**Examples**

    capri tune val.npz --objective cvar:0.2 -o policy.json

    capri tune val.csv --label-column species --proba --class-counts 900,90,10 -o policy.json

    capri tune val.npy --labels y.npy --objective weighted --weights importance.csv -o policy.json

    capri tune val.npz --objective worst --constraint "plain <= baseline + 0.01" -o policy.json

**Files.** In .npz and .safetensors, `scores`, `logits` or `proba` (also after `val_`) with `y` or `labels`, and where
present `class_names`, `train_counts`, and the attributes `norm` and `noise`. In .csv and .parquet, columns
`score_<class>` (or all but the label) and `label` or `y`. Labels are class names, or positions from 0. Pickles are
refused.

**Exit codes.** 0: done; so too where no adjustment meets the constraints, with a warning on stderr and the one that
violates them least. 2: the input cannot be used; one line on stderr says why, and no file is written.
"""

Method = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        rich_help_panel=options.TUNING,
        help="`cap`: offsets are a map of class attributes; `plain`: each class has its own; "
        "`la`, `cdt`, `vs`: they follow class frequency.",
    ),
]
Output = Annotated[
    Path | None,
    typer.Option(
        "--output", "-o", metavar="FILE", rich_help_panel=options.OUTPUT, help="Where to write the policy (.json)."
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
    method: Method = "cap",
    pooling: options.Pooling = "auto",
    borrow: options.Borrow = 20.0,
    unlabelled: options.Unlabelled = None,
    unlabelled_key: options.UnlabelledKey = None,
    constraint: options.Constraints = None,
    attributes: options.Attributes = "auto",
    class_attributes: options.AttributeFile = None,
    parameters: options.Parameters = "l",
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
    others = {"--labels": given.labels, "--unlabelled": unlabelled, "--class-attributes": class_attributes}
    check_stdin({"SCORES": scores, **others})
    check_method(method)
    settings = {
        "objective": options.read_objective(objective, **given.has),
        "constraints": options.read_constraints(constraint, **given.has),
        "pooling": options.read_pooling(pooling),
        "borrow": options.read_borrow(borrow),
        "attributes": "auto" if attributes == "auto" else options.read_names(attributes),
        "method": method,
        "parameters": parameters,
        "scores": "proba" if proba else "logits",
        "absent": given.absent,
        "random_state": seed,
    }
    with spoken_warnings():
        samples = given.read(scores)
        settings |= given.context(samples.classes) | {"target_shares": given.shares(samples.classes)}
        extra = {} if class_attributes is None else class_table(class_attributes, samples.classes)
        further = None if unlabelled is None else further_scores(given.source(unlabelled, unlabelled_key), samples)
        adjuster = _fit(samples, settings, {**samples.attributes, **extra}, further)
    if output is not None:
        write_bytes(output, adjuster.policy_.to_json().encode())
    (_print_json if as_json else _print)(adjuster, samples, output)


def check_method(name: str) -> None:
    """Refuse a method that does not exist before any data are loaded."""
    from capri.posthoc.methods import METHODS

    if name not in METHODS:
        raise InputError(f"--method is {name!r}; it must be one of {', '.join(METHODS)}.")


def _fit(
    samples: Samples,
    settings: dict[str, Any],
    attributes: dict[str, NDArray[np.float64]],
    unlabelled: NDArray[Any] | None,
) -> LogitAdjuster:
    from capri.posthoc import LogitAdjuster
    from capri.posthoc.heldout import FOLDS

    labels = samples.require_labels()
    adjuster = LogitAdjuster(classes=samples.classes.labels, **settings)
    with progress(f"tuning {adjuster.objective}", FOLDS) as advance:
        known = {"class_counts": samples.class_counts, "class_attributes": attributes, "X_unlabelled": unlabelled}
        return adjuster.fit(samples.scores, labels, **known, on_progress=advance)


def _class_rows(adjuster: LogitAdjuster, samples: Samples) -> list[ClassRow]:
    found = adjuster.validation_
    counts = [None] * samples.n_classes if samples.class_counts is None else samples.class_counts.tolist()
    columns = (samples.classes.names, found.samples, counts, found.errors_before, found.errors_after)
    return [ClassRow(*row) for row in zip(*columns, strict=True)]


def _print(adjuster: LogitAdjuster, samples: Samples, output: Path | None) -> None:
    out, found = display.stdout(), adjuster.validation_
    out.print(samples.describe(), markup=False)
    out.print(f"tuned for {found.objective} with {adjuster.method}: {adjuster.reason_}\n", markup=False)
    out.print(display.objectives_table(found.before, found.after, found.objective))
    out.print(
        f"Errors in %, on the samples that tuned, where {found.objective} falls by {display.percent(found.in_sample)} "
        f"points.\n{_expected(found)}{_ladder(adjuster)}\n",
        markup=False,
    )
    rows = display.worst_first(_class_rows(adjuster, samples), SHOWN)
    out.print(display.classes_table(rows, title="The worst classes, before or after", after=True))
    display.tell(f"Policy: {output}" if output else "No policy was written; give -o policy.json to keep it.")


def _expected(found: Validation) -> str:
    """What to expect on other samples."""
    if found.improvement is None or found.interval is None:
        return "Judge it on other samples: `capri evaluate --policy`."
    low, high = map(display.percent, found.interval)
    return (
        f"Expect {display.percent(found.improvement)} points on other samples (90 % interval {low} to {high}), judged "
        "out of fold."
    )


def _ladder(adjuster: LogitAdjuster) -> str:
    """What simpler ways would gain."""
    simpler = [f"{rung} {display.percent(gain)}" for rung, gain in adjuster.path_.items() if rung != "tuned"]
    return f"\nIn the same way, simpler rungs gain: {'; '.join(simpler)}." if simpler else ""


def _print_json(adjuster: LogitAdjuster, samples: Samples, output: Path | None) -> None:
    found, policy = adjuster.validation_, adjuster.policy_
    display.print_json(
        {
            "scores": samples.origin,
            "policy": None if output is None else str(output),
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
            "classes": display.class_json(_class_rows(adjuster, samples), after=True),
        }
    )
