"""`capri report`: what a policy changes, as a page for people."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from capri.classes import Classes
from capri.cli import display, options
from capri.cli.inputs import Samples
from capri.cli.messages import spoken_warnings
from capri.cli.tables import check_output, check_stdin, write_bytes
from capri.policy import Policy
from capri.shares import target_shares

if TYPE_CHECKING:
    from capri.page import Content
    from capri.posthoc.problem import Problem

EXAMPLES = """
**Examples**

    capri report val.npz policy.json -o report.html

    capri report val.npz policy.json test.npz -o report.html

    capri report all.npz policy.json all.npz --scores-key val_logits --test-key test_logits -o report.html

    capri tune val.npz --objective cvar:0.2 -o policy.json --report report.html

With test samples, which neither training nor tuning has seen, the page speaks of them first. Without, it has what
`capri tune` judged out of fold; `capri tune --report` has the class errors out of fold, too, which no policy keeps.

**The page** is one file: it loads nothing, works from a folder or a mail, and holds aggregates by class, never scores
of samples.
"""


@options.with_given
def report(
    scores: options.ScoresFile,
    policy: options.PolicyFile,
    test: Annotated[
        Path | None,
        typer.Argument(metavar="[TEST]", show_default=False, help="Scores of samples that tuning has not seen."),
    ] = None,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", rich_help_panel=options.OUTPUT, help="The page (.html).")
    ] = Path("report.html"),
    test_key: Annotated[
        str | None,
        typer.Option(
            metavar="KEY", rich_help_panel=options.INPUT, help="Key or column prefix of the scores in TEST, if another."
        ),
    ] = None,
    test_labels: Annotated[
        Path | None,
        typer.Option(metavar="FILE", rich_help_panel=options.INPUT, help="Labels of TEST from a file of their own."),
    ] = None,
    frontier: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            rich_help_panel=options.INPUT,
            help="What `capri frontier -o` wrote of the same samples: the page gets a slider along it.",
        ),
    ] = None,
    given: options.Given = options.NOTHING,
) -> None:
    """Show what a policy changes, as a page to pass around: what got better, for whom, who pays, and how sure that is.

    SCORES are the **validation** samples that tuned the policy.
    """
    check_page(output, scores, policy, test, test_labels, frontier, *given.files)
    read = {"SCORES": scores, "POLICY": policy, "TEST": test, "--frontier": frontier}
    check_stdin({**read, "--labels": given.labels, "--test-labels": test_labels})
    with spoken_warnings():
        rule = options.read_policy(policy)
        rule.require_posthoc()
        known = _known(rule, scores, given)
        told = replace(given, labels=test_labels, scores_key=test_key or given.scores_key)
        unseen = None if test is None else told.read(test, Classes.of(rule.classes))
        content = _content(rule, known, unseen, given, {"policy": str(policy)}, frontier)
    write_bytes(output, page_of(content))
    display.tell(f"{content.headline}\nReport: {output}")


def _known(rule: Policy, scores: Path, given: options.Given) -> Samples:
    """The samples that tuned, as far as their digest can tell."""
    from capri.posthoc.account import tuned_on

    samples = given.read(scores, Classes.of(rule.classes))
    if not tuned_on(rule, samples.scores, samples.indices):
        warnings.warn(
            f"{samples.origin}: by their digest these are not quite the samples that tuned the policy, and are called "
            "so all the same; give samples that it has not seen as TEST.",
            stacklevel=2,
        )
    return samples


def _content(
    rule: Policy,
    known: Samples,
    unseen: Samples | None,
    given: options.Given,
    facts: dict[str, str],
    curve: Path | None,
) -> Content:
    from capri.posthoc.account import account, check_unseen
    from capri.posthoc.tradeoff import Frontier
    from capri.posthoc.views import by_policy

    counts = known.class_counts
    decided = [by_policy("in sample", rule, _posed(rule, known, given, counts))]
    facts = {**facts, "samples that tuned, from": known.origin}
    followed = None if curve is None else Frontier.load(curve)
    if unseen is not None:
        check_unseen(rule, unseen.scores, unseen.indices, unseen.origin, followed)
        decided.append(by_policy("test", rule, _posed(rule, unseen, given, counts)))
        facts["test samples, from"] = unseen.origin
    return account(rule, decided, class_counts=counts, curve=followed, facts=facts)


def _posed(rule: Policy, samples: Samples, given: options.Given, counts: Any) -> Problem:
    """The policy's question on these samples, in the class shares that it was tuned for."""
    from capri.posthoc.account import pose, shares_asked

    said, context = given.shares(samples.classes), given.context(samples.classes)
    if context["weights"] is None:
        context["weights"] = rule.attributes.get("weights")
    shares = shares_asked(rule) if said is None else target_shares(said, samples.classes, counts)
    return pose(
        rule, samples.scores, samples.indices, shares=shares, absent=given.absent, class_counts=counts, **context
    )


def check_page(path: Path, *others: Path | str | None) -> None:
    """Refuse a page that cannot be written, before any work."""
    import jinja2  # noqa: F401 (the page needs it at the end)

    check_output(path, [".html", ".htm"], *others)


def page_of(content: Content) -> bytes:
    """The page, as a file has it."""
    from capri.page import Report

    return Report(content).to_html().encode()
