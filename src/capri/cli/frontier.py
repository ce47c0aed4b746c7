"""`capri frontier`: what one objective costs in another, as a curve of policies."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from capri._checks import InputError
from capri.cli import display, options
from capri.cli.classes import class_table
from capri.cli.inputs import Samples, further_samples, further_scores
from capri.cli.messages import say, spoken_warnings
from capri.cli.progress import progress
from capri.cli.tables import check_output, check_stdin, write_bytes

if TYPE_CHECKING:
    from capri.posthoc import Frontier

EXAMPLES = """
**Examples**

    capri frontier val.npz --of cvar:0.2 --against plain -o frontier.json

    capri frontier val.npz --of worst --against plain --points 21 --policies points/

    capri frontier val.npz --of sdev --against balanced --held-out test.npz --json

**What it shows.** Each line is a policy: the lowest `--of` for its price in `--against`. Beside the figures of the
samples that tuned stand those of others: out of fold, where without each fold in turn a curve is made at the same
bounds and decides it, or those of `--held-out`. Above the curve stand the unadjusted scores, logit adjustment with
τ = 1, and what `capri tune` chooses.

**Files.** As for `capri tune`. The curve's file holds figures and policies; `capri.posthoc.Frontier.load` reads it.
`--policies` writes each policy into a file of its own, for `capri apply`, `capri evaluate` or `capri fold`.
"""


@options.with_given
def frontier(
    scores: options.ScoresFile,
    of: Annotated[
        str,
        typer.Option("--of", metavar="NAME", rich_help_panel=options.TUNING, help="What to lower, as in `capri tune`."),
    ] = "balanced",
    against: Annotated[
        str,
        typer.Option(
            "--against",
            metavar="NAME",
            rich_help_panel=options.TUNING,
            help="What it is paid in: another objective. Constraints on it give way to the bounds of the points.",
        ),
    ] = "plain",
    points: Annotated[
        int, typer.Option(min=2, max=1000, metavar="N", rich_help_panel=options.TUNING, help="How many points at most.")
    ] = 11,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="FILE", rich_help_panel=options.OUTPUT, help="Where to write the curve (.json)."
        ),
    ] = None,
    policies: Annotated[
        Path | None,
        typer.Option(metavar="DIR", rich_help_panel=options.OUTPUT, help="Folder for the policy of each point."),
    ] = None,
    held_out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            rich_help_panel=options.INPUT,
            help="Samples with labels to judge by, laid out as SCORES is.",
        ),
    ] = None,
    method: options.Method = "cap",
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
    """Show what an objective costs in another: the whole curve, each point a policy.

    Reads scores and labels as `capri tune` does, and tunes for `--of` under one bound on `--against` after another.
    Pick the point whose price you are willing to pay. It takes several times as long as
    `capri tune`.
    """
    read = {"SCORES": scores, "--labels": given.labels, "--unlabelled": unlabelled}
    read |= {"--class-attributes": class_attributes, "--held-out": held_out}
    if output is not None:
        check_output(output, [".json"], scores, unlabelled, class_attributes, held_out, *given.files)
    if policies is not None:
        _check_policies(policies, scores, unlabelled, class_attributes, held_out, output, *given.files)
    check_stdin(read)
    how: dict[str, Any] = {"pooling": pooling, "borrow": borrow, "attributes": attributes, "parameters": parameters}
    settings = options.read_settings(given, method=method, constraint=constraint, seed=seed, proba=proba, **how)
    pair = {"of": options.read_objective(of, **given.has), "against": options.read_objective(against, **given.has)}
    if pair["of"].name == pair["against"].name:
        raise InputError(f"--of and --against are both {of!r}; give two different objectives.")
    with spoken_warnings():
        samples = given.read(scores)
        settings |= given.context(samples.classes) | {"target_shares": given.shares(samples.classes)}
        extra = {} if class_attributes is None else class_table(class_attributes, samples.classes)
        known: dict[str, Any] = {"class_attributes": {**samples.attributes, **extra}}
        if unlabelled is not None:
            known["X_unlabelled"] = further_scores(given.source(unlabelled, unlabelled_key), samples)
        if held_out is not None:
            others = further_samples(given.source(held_out, None), samples)
            known["held_out"] = (others.scores, others.require_labels())
        curve = _find(samples, pair, points, settings | known)
    if output is not None:
        write_bytes(output, curve.to_json().encode())
    if policies is not None:
        _write_policies(curve, policies)
    (_print_json if as_json else _print)(curve, samples, output, policies)


def _find(samples: Samples, pair: dict[str, Any], points: int, settings: dict[str, Any]) -> Frontier:
    from capri.posthoc import frontier
    from capri.posthoc.heldout import FOLDS

    with progress(f"{pair['of']} against {pair['against']}", FOLDS + 1) as advance:
        return frontier(
            samples.scores,
            samples.require_labels(),
            **pair,
            points=points,
            classes=samples.classes.labels,
            class_counts=samples.class_counts,
            on_progress=advance,
            **settings,
        )


def _file(i: int) -> str:
    """The name of the file of a policy."""
    return f"point{i:02d}.json"


def _check_policies(folder: Path, *others: Path | str | None) -> None:
    """Refuse a folder that cannot be written to, or in whose policies' place lies another of the command's files."""
    check_output(folder / _file(0), [".json"])
    for other in others:
        if other is not None and re.fullmatch(r"point\d+\.json", name := Path(other).name):
            check_output(folder / name, [".json"], other)


def _write_policies(curve: Frontier, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for i, policy in enumerate(curve.policies):
        write_bytes(folder / _file(i), policy.to_json().encode())
    if (other := folder / _file(len(curve))).exists():
        say(f"warning: {other} and what may follow it are of another curve, which was there before.")


def _print(curve: Frontier, samples: Samples, output: Path | None, policies: Path | None) -> None:
    out = display.stdout()
    out.print(samples.describe(), markup=False)
    out.print(f"{curve.of} against {curve.against}: {len(curve)} points\n", markup=False)
    out.print(display.frontier_table(curve))
    if curve.held_out is None:
        out.print("Errors in %, on the samples that tuned. Judge points on others: `capri evaluate --policy`.")
    else:
        said = "with 90 % intervals of the change from unadjusted"
        out.print(f"Errors in %: on the samples that tuned, and {curve.held_out}, {said}.")
    if len(curve) == 1:
        out.print(f"One point is all there is: the best {curve.of} costs nothing in {curve.against}.", markup=False)
    display.tell(f"Curve: {output}" if output else "No curve was written; give -o frontier.json to keep it.")
    if policies is not None:
        display.tell(f"Policies: {policies / _file(0)} to {_file(len(curve) - 1)}")


def _print_json(curve: Frontier, samples: Samples, output: Path | None, policies: Path | None) -> None:
    content = curve.to_dict()
    for i, point in enumerate(content["points"]):
        point["policy"] = None if policies is None else str(policies / _file(i))
    display.print_json({"scores": samples.origin, "frontier": None if output is None else str(output), **content})
