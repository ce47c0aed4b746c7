"""Options that several commands share, and how their text is read."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias, get_type_hints

import numpy as np
import typer

from capri._checks import InputError
from capri.classes import Classes
from capri.cli.classes import class_context, class_numbers
from capri.cli.inputs import Samples, Source, Stream, read_samples, read_stream
from capri.cli.tables import STDIN
from capri.constraints import Constraint, as_constraint
from capri.errors import Absent
from capri.forms import ClassContext
from capri.objectives import Objective, as_objective
from capri.policy import Policy

INPUT, TUNING, OUTPUT = "Input", "Tuning", "Output"

ScoresFile: TypeAlias = Annotated[
    Path,
    typer.Argument(
        metavar="SCORES",
        show_default=False,
        help="Scores of a model: .npz, .npy, .safetensors, .csv, .parquet or a folder of .parquet files; - is standard "
        "input (no .safetensors).",
    ),
]
PolicyFile: TypeAlias = Annotated[
    Path, typer.Argument(metavar="POLICY", show_default=False, help="A policy that `capri tune` wrote.")
]
ScoresKey: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="KEY",
        rich_help_panel=INPUT,
        help="Key of the scores in the file; in tables, what the names of score columns begin with.",
    ),
]
LabelKey: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--label-key", "--label-column", metavar="KEY", rich_help_panel=INPUT, help="Key or column of the labels."
    ),
]
LabelFile: TypeAlias = Annotated[
    Path | None,
    typer.Option("--labels", metavar="FILE", rich_help_panel=INPUT, help="Labels from a file of their own."),
]
ClassNames: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="LIST|FILE", rich_help_panel=INPUT, help="Names of the score columns: `cat,dog,lynx`, or a file."
    ),
]
ClassCounts: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="LIST|FILE",
        rich_help_panel=INPUT,
        help="Training samples of each class: `900,90,10`, or a file; else `train_counts` of the scores' file.",
    ),
]
Weights: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="LIST|FILE", rich_help_panel=INPUT, help="Importance of each class, for the objective `weighted`."
    ),
]
Groups: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="LIST|FILE", rich_help_panel=INPUT, help="Group of each class, for the objective `worst_group`."
    ),
]
TargetShares: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="train|validation|LIST|FILE",
        rich_help_panel=INPUT,
        help="Class shares where the classifier will be used, for the plain error, F1 and costs.",
    ),
]
Proba: TypeAlias = Annotated[
    bool, typer.Option("--proba", rich_help_panel=INPUT, help="The scores are probabilities, not logits.")
]
AbsentClasses: TypeAlias = Annotated[
    Absent,
    typer.Option("--absent", rich_help_panel=INPUT, help="What to do about classes without samples."),
]
Method: TypeAlias = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        rich_help_panel=TUNING,
        help="`cap`: offsets are a map of class attributes; `plain`: each class has its own; "
        "`la`, `cdt`, `vs`: they follow class frequency.",
    ),
]
Constraints: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--constraint",
        metavar="TEXT",
        rich_help_panel=TUNING,
        help="What tuning must keep, such as `plain <= baseline + 0.01` or `precision[lynx] >= 0.9`; may be repeated. "
        "`sdev` alone is tuned under `balanced <= baseline`, unless this is `none`.",
    ),
]
Reject: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="TEXT",
        rich_help_panel=TUNING,
        help="Leave samples undecided where the decision is least sure: at most a share, `0.1`; as many as pay where "
        "each costs a share of an error, `cost:0.3`; or as few as it takes, `until precision[*] >= 0.9`.",
    ),
]
MinCoverage: TypeAlias = Annotated[
    float | None,
    typer.Option(
        metavar="SHARE",
        rich_help_panel=TUNING,
        show_default="0.5",
        help="With `--reject`: the share of each class that is decided at least.",
    ),
]
Guarantee: TypeAlias = Annotated[
    float | None,
    typer.Option(
        metavar="SHARE",
        rich_help_panel=TUNING,
        help="A confidence, such as 0.95, with which the constraints shall hold on future samples: half of the samples "
        "then tune, and the others test. For floors on recall, precision, F1 and accuracy, such as `recall[*] >= 0.5`.",
    ),
]
Attributes: TypeAlias = Annotated[
    str,
    typer.Option(
        metavar="LIST",
        rich_help_panel=TUNING,
        help="Class attributes: `freq,diff,weights` or columns of --class-attributes; `auto` takes all that are known.",
    ),
]
AttributeFile: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--class-attributes",
        metavar="FILE",
        rich_help_panel=TUNING,
        help="Further attributes: a table with a column `class` and one column for each.",
    ),
]
Parameters: TypeAlias = Annotated[
    Literal["l", "delta", "both"],
    typer.Option(rich_help_panel=TUNING, help="What `cap` tunes: offsets, multipliers (logits only), or both."),
]
Pooling: TypeAlias = Annotated[
    str,
    typer.Option(
        metavar="auto|none|λ",
        rich_help_panel=TUNING,
        help="May a class leave what its attributes say? As its samples allow, not at all, or by a penalty λ > 0.",
    ),
]
Unlabelled: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        rich_help_panel=INPUT,
        help="Scores of further samples without labels, such as those to be decided: they help where labels are few.",
    ),
]
UnlabelledKey: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="KEY", rich_help_panel=INPUT, help="Key or column prefix of these scores, if not as --scores-key."
    ),
]
Borrow: TypeAlias = Annotated[
    float,
    typer.Option(
        min=0,
        metavar="N",
        rich_help_panel=TUNING,
        help="How many labels of a class the model's own calibrated opinion is worth; 0 goes by the labels alone.",
    ),
]
Seed: TypeAlias = Annotated[int, typer.Option(min=0, rich_help_panel=TUNING, help="Seed; equal seeds, equal answers.")]
Json: TypeAlias = Annotated[
    bool, typer.Option("--json", rich_help_panel=OUTPUT, help="Print JSON and nothing else on stdout.")
]


@dataclass(frozen=True)
class Given:
    """What several commands may be told of the samples and their classes."""

    scores_key: ScoresKey = None
    label_key: LabelKey = None
    labels: LabelFile = None
    class_names: ClassNames = None
    class_counts: ClassCounts = None
    weights: Weights = None
    groups: Groups = None
    target_shares: TargetShares = None
    absent: AbsentClasses = "error"

    @property
    def has(self) -> dict[str, bool]:
        """Which of the things that an objective may ask for will be there."""
        return {"weights": self.weights is not None, "groups": self.groups is not None}

    @property
    def files(self) -> tuple[Path | str | None, ...]:
        """What may be files that are read."""
        return (self.labels, self.class_names, self.class_counts, self.weights, self.groups, self.target_shares)

    def read(self, scores: Path, policy: Classes | None = None) -> Samples:
        """The samples of a file, in the order of a policy's classes where there is one."""
        samples = read_samples(self._scores(scores, policy))
        return samples if policy is None else samples.ordered_as(policy)

    def stream(self, scores: Path, policy: Classes | None = None) -> Stream:
        """The same in blocks of rows."""
        stream = read_stream(self._scores(scores, policy))
        return stream if policy is None else stream.ordered_as(policy)

    def _scores(self, path: Path, policy: Classes | None) -> Source:
        return Source(path, self.scores_key, self.label_key, self.labels, self.class_names, self.class_counts, policy)

    def source(self, path: Path, scores_key: str | None) -> Source:
        """A file of further scores, which may be laid out as the samples are."""
        source = Source(path, self.scores_key, self.label_key, class_names=self.class_names)
        return (
            source if scores_key is None else replace(source, scores_key=scores_key, scores_option="--unlabelled-key")
        )

    def context(self, classes: Classes) -> dict[str, Any]:
        """Weights and groups, as objectives take them."""
        return class_context(self.weights, self.groups, classes)

    def shares(self, classes: Classes) -> Any:
        """Class shares of the world: a word or one number per class; None where nothing is said of them."""
        if self.target_shares in (None, "train", "validation"):
            return self.target_shares
        return class_numbers(str(self.target_shares), "--target-shares", classes)


NOTHING = Given()


def with_given(command: Callable[..., None]) -> Callable[..., None]:
    """The command with the options of `Given` in place of its argument `given`."""
    shared = {f.name: f.default for f in fields(Given)}
    hints = get_type_hints(command, include_extras=True)
    types = {**hints, **get_type_hints(Given, include_extras=True)}

    @wraps(command)
    def told(**options: Any) -> None:
        given = Given(**{name: options.pop(name) for name in shared})
        command(**options, given=given)

    defaults = {name: p.default for name, p in signature(command).parameters.items()}
    at = list(defaults).index("given")
    names = [*list(defaults)[:at], *shared, *list(defaults)[at + 1 :]]
    parameters = [
        Parameter(name, Parameter.KEYWORD_ONLY, default={**defaults, **shared}[name], annotation=types[name])
        for name in names
    ]
    told.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    told.__annotations__ = {name: types[name] for name in names}
    return told


def read_objective(text: str, *, weights: bool, groups: bool, counts: bool = True) -> Objective:
    """An objective, tried on made-up classes, so that a bad parameter fails before any data are loaded.

    weights, groups, counts: whether these will be there. Names in ``err[…]`` and the like cannot be known yet and pass.
    """
    objective = as_objective(text)
    names = list(dict.fromkeys([*re.findall(r"\[([^\]]+)\]", text), "\0", "\1", "\2"]))
    shots = np.resize([1000, 50, 5], len(names))
    objective.on(
        ClassContext.of(
            np.ones(len(names)),
            class_names=[name.strip() for name in names],
            weights=np.ones(len(names)) if weights else None,
            groups=np.arange(len(names)) if groups else None,
            class_counts=shots if counts else None,
        )
    )
    return objective


def read_constraints(texts: Sequence[str] | None, *, weights: bool, groups: bool) -> list[Constraint] | None:
    """Constraints, tried in the same way. None leaves the choice to `LogitAdjuster`; the word `none` means none."""
    if not texts:
        return None
    if list(texts) == ["none"]:
        return []
    constraints = [as_constraint(text) for text in texts]
    for constraint in constraints:
        read_objective(constraint.objective.name, weights=weights, groups=groups)
    return constraints


def read_settings(
    given: Given,
    *,
    method: str,
    pooling: str,
    borrow: float,
    constraint: Sequence[str] | None,
    attributes: str,
    parameters: str,
    seed: int,
    proba: bool,
) -> dict[str, Any]:
    """How to tune, as `LogitAdjuster` takes it; what is wrong with it is said before any data are loaded."""
    from capri.posthoc.methods import METHODS

    if method not in METHODS:
        raise InputError(f"--method is {method!r}; it must be one of {', '.join(METHODS)}.")
    return {
        "constraints": read_constraints(constraint, **given.has),
        "pooling": read_pooling(pooling),
        "borrow": read_borrow(borrow),
        "attributes": "auto" if attributes == "auto" else read_names(attributes),
        "method": method,
        "parameters": parameters,
        "scores": "proba" if proba else "logits",
        "absent": given.absent,
        "random_state": seed,
    }


def read_reject(reject: str | None, min_coverage: float | None) -> dict[str, Any]:
    """What to leave undecided, tried before any data are loaded."""
    from capri.posthoc.abstention import as_asked

    if min_coverage is not None and reject is None:
        raise InputError("--min-coverage is about samples that are left undecided; give --reject, too.")
    if min_coverage is not None and not 0 <= min_coverage < 1:
        raise InputError(f"--min-coverage is {min_coverage}; it must be 0 or more, and below 1.")
    if reject is not None:
        as_asked(reject)
    return {"reject": reject} | ({} if min_coverage is None else {"min_coverage": min_coverage})


def read_guarantee(share: float | None, constraints: Sequence[Constraint] | None) -> float | None:
    """A confidence between 0 and 1, and constraints that it is about."""
    if share is not None and not 0 < share < 1:
        raise InputError(f"--guarantee is {share}; it must be between 0 and 1, such as 0.95.")
    if share is not None and not constraints:
        raise InputError("--guarantee is a promise about constraints; give some, as --constraint 'recall[*] >= 0.5'.")
    return share


def read_policy(path: Path) -> Policy:
    """A policy from its file."""
    if path == STDIN:
        raise InputError("a policy is not read from standard input; give its file.")
    return Policy.load(path)


def read_borrow(number: float) -> float:
    """A finite number, 0 or more."""
    if not 0 <= number < np.inf:
        raise InputError(f"--borrow is {number}; it must be a finite number, 0 or more.")
    return number


def read_pooling(text: str) -> Literal["auto"] | float | None:
    """`auto`, `none` or a positive number."""
    if text == "auto":
        return "auto"
    if text == "none":
        return None
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < np.inf:
        raise InputError(f"--pooling is {text!r}; it must be auto, none, or a positive number.")
    return number


def read_names(text: str) -> list[str]:
    """`freq,diff` as a list."""
    names = [name.strip() for name in text.split(",")]
    if not all(names):
        raise InputError(f"{text!r} has an empty name; write names with commas between them, such as freq,diff.")
    return names
