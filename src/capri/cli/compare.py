"""`capri compare`: which method to trust on these data."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from typing import Annotated

import typer

from capri import study
from capri._checks import InputError
from capri.cli import display, options
from capri.cli.messages import spoken_warnings
from capri.cli.progress import progress
from capri.cli.tables import check_stdin
from capri.shares import target_shares
from capri.study import METHODS, Split

DEFAULT_METHODS = ("unadjusted", "la", "plain", "cap", "cap-pooled")

EXAMPLES = """
**Examples**

    capri compare val.npz --objective cvar:0.2

    capri compare val.npz --objective balanced --objective worst --splits 10 --json

**Methods.** `unadjusted`; `la`: logit adjustment, tuned; `plain`: one free offset per class; `cap`: a map of class
attributes; `cap-pooled`: the same, from which classes may deviate (the default of `capri tune`); also `cdt`, `vs`, and
`la1`: logit adjustment with τ = 1, which tunes nothing. `sdev` alone is tuned under `balanced <= baseline`.
"""


@options.with_given
def compare(
    scores: options.ScoresFile,
    objective: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="What to tune for; may be repeated. By default balanced.")
    ] = None,
    methods: Annotated[str, typer.Option(metavar="LIST", help="Methods to compare.")] = ",".join(DEFAULT_METHODS),
    splits: Annotated[int, typer.Option(min=1, help="How many random splits.")] = 5,
    holdout: Annotated[float, typer.Option(help="Share of each class that is held out, between 0 and 1.")] = 0.5,
    seed: options.Seed = 0,
    proba: options.Proba = False,
    given: options.Given = options.NOTHING,
    as_json: options.Json = False,
) -> None:
    """Compare methods on samples that they were not tuned on.

    The samples are split at random within each class: one part to tune on, the other to judge. The table gives mean ±
    standard deviation over splits of the held-out objective, of its paired difference to the unadjusted model, and of
    the objective on the part tuned on.
    """
    check_stdin({"SCORES": scores, "--labels": given.labels})
    wanted = options.read_names(methods)
    _check_methods(wanted)
    if not 0 < holdout < 1:
        raise InputError(f"--holdout is {holdout:g}; it must lie between 0 and 1, such as 0.5.")
    goals = list(dict.fromkeys(options.read_objective(text, **given.has).name for text in objective or ["balanced"]))
    with spoken_warnings():
        samples = given.read(scores)
        y, names, counts = samples.indices, samples.classes.names, samples.class_counts
        context = given.context(samples.classes)
        said = given.shares(samples.classes)
        default = "validation" if counts is None or counts.min() == 0 else "train"  # as `capri tune` has it
        context["shares"] = target_shares(default if said is None else said, samples.classes, counts)

        def split(split_seed: int, goal: str) -> Split:
            known = {"train_counts": counts, "kind": "proba" if proba else "logits", "absent": given.absent, **context}
            return study.hold_out(samples.scores, y, names, holdout, split_seed, **known)

        chosen = {name: METHODS[name] for name in study.possible_methods(wanted, y, len(names), counts)}
        with progress("comparing", splits * len(goals)) as advance:
            result = study.run(split, range(seed, seed + splits), chosen, goals, on_step=advance)
    if as_json:
        content = {"scores": samples.origin, "splits": splits, "holdout": holdout, "seed": seed}
        display.print_json(content | {"objectives": {goal: display.comparison_json(result, goal) for goal in goals}})
        return
    out = display.stdout()
    out.print(samples.describe(), markup=False)
    for goal in goals:
        out.print(display.comparison_table(result, goal))
        if len(chosen) > 1:
            display.tell(display.verdict(result, goal))
    out.print(
        f"\nErrors in %, mean ± standard deviation, n = {splits} splits with {holdout:.0%} of each class held out; "
        "lower is better."
    )


def _check_methods(names: Sequence[str]) -> None:
    """Refuse methods that do not exist."""
    for name in names:
        if name not in METHODS:
            near = get_close_matches(name, METHODS, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(METHODS)}."
            raise InputError(f"--methods holds {name!r}, which is not a method; {hint}")
