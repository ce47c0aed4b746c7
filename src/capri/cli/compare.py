"""`capri compare`: which method to trust on these data."""

from __future__ import annotations

from typing import Annotated

import typer

from capri.cli import comparison, display, options
from capri.cli.classes import class_context
from capri.cli.comparison import DEFAULT_ROWS, Setting
from capri.cli.inputs import Source, read_samples, warn_if_probabilities
from capri.cli.messages import spoken_warnings
from capri.cli.progress import progress

EXAMPLES = """
**Examples**

    capri compare val.npz --objective cvar:0.2

    capri compare val.npz --objective balanced --objective worst --splits 10 --json

**Methods.** `unadjusted`; `la`: logit adjustment, tuned; `plain`: one free offset per class; `cap`: a map of class
attributes; `cap-pooled`: the same, from which classes may deviate (the default of `capri tune`); also `cdt` and `vs`.
`sdev` alone is tuned under `balanced <= baseline`.
"""


def compare(
    scores: options.ScoresFile,
    objective: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="What to tune for; may be repeated. By default balanced.")
    ] = None,
    methods: Annotated[str, typer.Option(metavar="LIST", help="Methods to compare.")] = ",".join(DEFAULT_ROWS),
    splits: Annotated[int, typer.Option(min=1, help="How many random splits.")] = 5,
    holdout: Annotated[float, typer.Option(help="Share of each class that is held out, between 0 and 1.")] = 0.5,
    seed: options.Seed = 0,
    scores_key: options.ScoresKey = None,
    label_key: options.LabelKey = None,
    labels: options.LabelFile = None,
    proba: options.Proba = False,
    class_names: options.ClassNames = None,
    class_counts: options.ClassCounts = None,
    weights: options.Weights = None,
    groups: options.Groups = None,
    absent: options.AbsentClasses = "error",
    as_json: options.Json = False,
) -> None:
    """Compare methods on samples that they were not tuned on.

    The samples are split at random within each class: one part to tune on, the other to judge. The table gives mean ±
    standard deviation over splits of the held-out objective, of its paired difference to the unadjusted model, and of
    the objective on the part tuned on.
    """
    rows = options.read_names(methods)
    comparison.check_rows(rows)
    comparison.check_holdout(holdout)
    has = {"weights": weights is not None, "groups": groups is not None}
    goals = [options.read_objective(text, **has).name for text in objective or ["balanced"]]
    with spoken_warnings():
        samples = read_samples(Source(scores, scores_key, label_key, labels, class_names, class_counts))
        if not proba:
            warn_if_probabilities(samples)
        setting = Setting(
            samples.scores,
            samples.require_labels(),
            samples.class_names,
            class_counts=samples.class_counts,
            **class_context(weights, groups, samples.class_names),
            kind="proba" if proba else "logits",
            absent=absent,
        )
        rows = comparison.possible_rows(setting, rows)
        with progress("comparing", splits * len(goals) * len(rows)) as advance:
            result = comparison.compare(
                setting, goals, rows, splits=splits, holdout=holdout, seed=seed, on_step=advance
            )
    if as_json:
        content = {"scores": samples.origin, "splits": splits, "holdout": holdout, "seed": seed}
        display.print_json(content | {"objectives": display.comparison_json(result)})
        return
    out = display.stdout()
    out.print(samples.describe(), markup=False)
    for goal, figures in result.items():
        out.print(display.comparison_table(goal, figures))
    out.print(
        f"Errors in %, mean ± standard deviation, n = {splits} splits with {holdout:.0%} of each class held out; "
        "lower is better."
    )
