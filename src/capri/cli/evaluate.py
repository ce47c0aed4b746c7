"""`capri evaluate`: objectives and class errors of scores, with and without a policy."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Annotated, Any

import typer

from capri._checks import InputError, Ints
from capri.classes import Classes
from capri.cli import display, options
from capri.cli.display import ClassRow
from capri.cli.inputs import Samples
from capri.cli.messages import spoken_warnings
from capri.cli.tables import check_stdin
from capri.errors import class_errors, class_totals
from capri.evaluation import STANDARD
from capri.evaluation import evaluate as evaluate_predictions
from capri.policy import Policy

EXAMPLES = """
**Examples**

    capri evaluate test.npz

    capri evaluate test.npz --policy policy.json --objective balanced --objective worst

    capri evaluate all.npz --scores-key test_logits --policy policy.json --json
"""


@options.with_given
def evaluate(
    scores: options.ScoresFile,
    policy: Annotated[
        Path | None, typer.Option(metavar="FILE", show_default=False, help="Decide by this policy, too.")
    ] = None,
    objective: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help=f"What to report; may be repeated. By default {', '.join(STANDARD)}."),
    ] = None,
    classes: Annotated[
        int, typer.Option(min=0, metavar="N", help="How many classes to show, the worst first; 0 shows all.")
    ] = 20,
    given: options.Given = options.NOTHING,
    as_json: options.Json = False,
) -> None:
    """Report objectives and the error of each class, before and after a policy.

    Use samples that neither training nor tuning has seen.
    """
    check_stdin({"SCORES": scores, "--labels": given.labels, "--policy": policy})
    for text in objective or ():
        options.read_objective(text, **given.has | ({} if policy is None else {"weights": True}))
    with spoken_warnings():
        rule = None if policy is None else options.read_policy(policy)
        samples = given.read(scores, None if rule is None else Classes.of(rule.classes))
        context = given.context(samples.classes)
        context["target_shares"] = given.shares(samples.classes)
        context |= {"absent": given.absent, "class_counts": samples.class_counts, "class_names": samples.classes.names}
        if rule is not None and given.weights is None:
            context["weights"] = rule.attributes.get("weights")
        wanted = objective or _default_objectives(samples, rule, context)
        predictions = {"before": samples.scores.argmax(axis=1)}
        if rule is not None:
            predictions["after"] = rule.apply(samples.scores).argmax(axis=1)
        figures = {when: _evaluate(samples, p, wanted, context) for when, p in predictions.items()}
    rows = _class_rows(samples, predictions)
    if as_json:
        content = {"scores": samples.origin, "policy": policy and str(policy), "n_samples": len(samples.scores)}
        display.print_json(content | figures | {"classes": display.class_json(rows, after=rule is not None)})
        return
    out = display.stdout()
    out.print(samples.describe(), markup=False)
    out.print(
        display.objectives_table(figures["before"], figures.get("after"), None if rule is None else rule.objective)
    )
    shown = display.worst_first(rows, classes)
    title = "Classes, the worst first" if len(shown) == len(rows) else f"The worst {len(shown)} of {len(rows)} classes"
    out.print(display.classes_table(shown, title=title, after=rule is not None))
    out.print("Errors in %.")


def _evaluate(samples: Samples, predictions: Ints, objectives: list[str], context: dict[str, Any]) -> dict[str, float]:
    return evaluate_predictions(samples.indices, predictions, samples.n_classes, objectives, **context)


def _default_objectives(samples: Samples, rule: Policy | None, context: dict[str, Any]) -> list[str]:
    """The standard ones, the weighted error where there are weights, and what the policy was tuned for."""
    wanted = [*STANDARD, *(["weighted"] if context["weights"] is not None else [])]
    if rule is None or rule.objective in wanted:
        return wanted
    try:
        _evaluate(samples, samples.indices, [rule.objective], context | {"absent": "ignore"})
    except InputError as error:
        warnings.warn(f"the policy's own objective {rule.objective!r} is left out: {error}", stacklevel=2)
        return wanted
    return [*wanted, rule.objective]


def _class_rows(samples: Samples, predictions: dict[str, Ints]) -> list[ClassRow]:
    y, k = samples.indices, samples.n_classes
    totals = class_totals(y, k)
    errors = {when: class_errors(y, p, k) for when, p in predictions.items()}
    listed = {
        when: [None if total == 0 else float(e) for e, total in zip(values, totals, strict=True)]
        for when, values in errors.items()
    }
    return [
        ClassRow(
            name,
            float(totals[j]),
            None if samples.class_counts is None else float(samples.class_counts[j]),
            listed["before"][j],
            listed["after"][j] if "after" in listed else None,
        )
        for j, name in enumerate(samples.classes.names)
    ]
