"""`capri evaluate`: objectives and class errors of scores, with and without a policy."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

from capri._checks import InputError, Ints
from capri._provenance import DataDigest
from capri.blocks.source import added
from capri.blocks.tallies import Cells, Tally, all_merged, unadjusted
from capri.classes import Classes
from capri.cli import display, options
from capri.cli.display import ClassRow
from capri.cli.inputs import Stream
from capri.cli.messages import spoken_warnings
from capri.cli.progress import progress
from capri.cli.tables import check_stdin
from capri.errors import errors_of
from capri.evaluation import STANDARD, coverage, evaluate_counts
from capri.policy import Policy
from capri.sentences import headline, percent
from capri.validation import Validation, in_lines, summary

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
    ] = 5,
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
        samples = given.stream(scores, None if rule is None else Classes.of(rule.classes))
        samples.require_labels()
        context = given.context(samples.classes)
        context["target_shares"] = given.shares(samples.classes)
        context |= {"absent": given.absent, "class_counts": samples.class_counts, "class_names": samples.classes.names}
        if rule is not None and given.weights is None:
            context["weights"] = rule.attributes.get("weights")
        confusion, known = _counted(samples, rule)
        wanted = objective or _default_objectives(samples, confusion["before"], rule, context)
        figures = {when: evaluate_counts(c, samples.classes, wanted, **context) for when, c in confusion.items()}
    abstains = rule is not None and rule.thresholds is not None
    rows, covered = _class_rows(samples, confusion, abstains), {}
    if abstains:
        covered = coverage(confusion["after"], confusion["before"].sum(axis=1))
        figures["after"] |= covered
    if as_json:
        content = {"scores": samples.origin, "policy": policy and str(policy), "n_samples": samples.blocks.count()}
        display.print_json(content | figures | {"classes": display.class_json(rows, after=rule is not None)})
        return
    out = display.stdout()
    out.print(samples.describe(), markup=False)
    if rule is not None:
        display.tell(f"\n{in_lines(_said(samples, rule, figures, rows, known), display.width())}")
    out.print(
        display.objectives_table(figures["before"], figures.get("after"), None if rule is None else rule.objective)
    )
    shown = display.worst_first(rows, classes)
    title = "Classes, the worst first" if len(shown) == len(rows) else f"The worst {len(shown)} of {len(rows)} classes"
    out.print(display.classes_table(shown, title=title, after=rule is not None))
    if covered:
        whole, least = percent(covered["coverage"]), percent(covered["min_coverage"])
        out.print(f"Decided: {whole} % of all, {least} % or more of each class. Errors after the policy are of these.")
    out.print("Errors in %." + ("" if len(shown) == len(rows) else " All classes: --classes 0."))


def _counted(samples: Stream, rule: Policy | None) -> tuple[dict[str, NDArray[np.float64]], bool]:
    """Confusion matrices before and after the policy, in one pass, and whether these samples tuned it."""
    rules = {"before": unadjusted} | ({} if rule is None else {"after": rule.decide})
    tally = Tally(list(rules.values()), samples.columns, samples.n_classes)
    n, digest, labels = samples.blocks.count(), DataDigest(), list[Ints]()
    tuned = {} if rule is None else _seen_by(rule, n)  # perhaps these samples

    def measured() -> Iterator[list[Cells]]:
        with progress("evaluating", n) as advance:
            for block in samples.blocks:
                if tuned:
                    labels.append(tally.encoded(block))
                if tuned and "sample" not in tuned:
                    if block.start == 0:
                        digest.begin(block.scores.dtype, (n, samples.n_classes))
                    digest.add(block.scores)
                yield tally(block)
                advance(len(block.scores))

    cells = added(measured(), all_merged)
    told = digest.text
    if tuned:
        digest.begin(np.dtype(np.int64), (n,))
        digest.add(np.concatenate(labels))
        told = samples.blocks.digest_with(np.concatenate(labels)) if "sample" in tuned else digest.text
    found = {when: c.confusion(samples.n_classes) for when, c in zip(rules, cells, strict=True)}
    return found, bool(tuned) and tuned.get("digest") == told


def _seen_by(rule: Policy, n: int) -> Mapping[str, Any]:
    """What is known of so many samples that tuned the policy, or that tuned and tested it."""
    promise = rule.data.get("promise")
    for known in (rule.data, promise if isinstance(promise, Mapping) else {}):
        if known.get("n_samples") == n:
            return known
    return {}


def _said(
    samples: Stream, rule: Policy, figures: dict[str, dict[str, float]], rows: list[ClassRow], known: bool
) -> dict[str, str]:
    """What the policy changes on these samples, in sentences."""
    before, after = figures["before"], figures["after"]
    objective = rule.objective if rule.objective in before else next(iter(before))
    found = Validation(
        objective,
        before,
        after,
        errors_before=[row.before for row in rows],
        errors_after=[row.after for row in rows],
        samples=[row.samples for row in rows],
        in_sample=before[objective] - after[objective],
        improvement=None,
        interval=None,
        feasible=True,
        class_names=samples.classes.names,
    )
    n = samples.blocks.count()
    among = f", {percent(after['coverage'])} % of them decided" if "coverage" in after else ""
    evidence = f"on these {n:,} samples{among}"
    if known:
        evidence = f"on the samples that tuned the policy{among}, which flatter it"
    first = replace(headline(objective, before, after, test=n), evidence=evidence)
    changes = summary(found)
    return {"headline": str(first), **{about: changes[about] for about in ("gain", "pay", "samples")}}


def _default_objectives(
    samples: Stream, confusion: NDArray[np.float64], rule: Policy | None, context: dict[str, Any]
) -> list[str]:
    """The standard ones, the weighted error where there are weights, and what the policy was tuned for."""
    wanted = [*STANDARD, *(["weighted"] if context["weights"] is not None else [])]
    if rule is None or rule.objective in wanted:
        return wanted
    try:
        evaluate_counts(confusion, samples.classes, [rule.objective], **context | {"absent": "ignore"})
    except InputError as error:
        warnings.warn(f"the policy's own objective {rule.objective!r} is left out: {error}", stacklevel=2)
        return wanted
    return [*wanted, rule.objective]


def _class_rows(samples: Stream, confusions: dict[str, NDArray[np.float64]], abstains: bool) -> list[ClassRow]:
    totals = confusions["before"].sum(axis=1)
    kept = confusions["after"].sum(axis=1) if abstains else totals
    listed = {
        when: [None if total == 0 else float(e) for e, total in zip(errors_of(c), totals, strict=True)]
        for when, c in confusions.items()
    }
    return [
        ClassRow(
            name,
            float(totals[j]),
            None if samples.class_counts is None else float(samples.class_counts[j]),
            listed["before"][j],
            listed["after"][j] if "after" in listed else None,
            float(kept[j] / totals[j]) if abstains and totals[j] else None,
        )
        for j, name in enumerate(samples.classes.names)
    ]
