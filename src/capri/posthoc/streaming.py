"""Tuning on scores that need not fit into memory: survey, gather, tune, verify.

1. *Survey*: the labels alone are passed over. They say which classes there are, and how many rows of each.
2. *Gather*: all rows, where what tuning needs of them fits into the budget; the answer is then that of the same rows in
   an array, to the bit. Otherwise a sample: of each class equally many rows, or all of a class that has no more, drawn
   by a seed from the labels, so that it is the same however rows are stored, cut into blocks, or spread over workers.
3. *Tune* on these in memory, in the class shares of all rows.
4. *Verify*: one more pass counts the figures of the policy, and what it must keep to, on every row.

What a sample of n_k of N_k rows leaves open is bounded, by Hoeffding's inequality for draws without replacement
(Serfling 1974), for a policy that was not tuned on it. With s_k = (1 − (n_k − 1) / N_k) / (2 n_k), with probability 0.9

    every class error lies within max_k sqrt(s_k log(2 K / 0.1)) of that on all rows,
    their mean, the balanced error, within sqrt(Σ_k s_k log(2 / 0.1)) / K ;

by the first, also every objective that is a rank or a tail of class errors.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from capri._checks import InputError, Ints, short
from capri.blocks.source import Block, Source
from capri.blocks.survey import survey
from capri.blocks.tallies import confusions, unadjusted
from capri.classes import Classes
from capri.errors import errors_of
from capri.evaluation import STANDARD, evaluate_confusion
from capri.forms import ClassContext, on_confusion
from capri.objectives import Objective
from capri.posthoc.problem import ROUNDING, Problem
from capri.sampling import draw
from capri.shares import in_shares
from capri.validation import Validation

if TYPE_CHECKING:
    from capri.policy import Policy

UNITS = {"": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}
WORKING = 10.0  # bytes that tuning takes for each byte of its scores; reproduction/benchmarks/beyond_memory.py measures
BLOCKS = 2**28  # bytes that reading takes
ROW = 24  # bytes that are kept of each row: its label, and where it goes
SURE = 0.9  # of the bound on class errors
FEWEST = 2  # rows of a class, below which a budget is refused


def as_bytes(memory: str | float) -> int:
    """A budget: a number of bytes, or text such as "2GB", "500 MB".

    >>> as_bytes("2GB"), as_bytes("1.5 MB")
    (2000000000, 1500000)
    """
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?i?b)?\s*", str(memory).lower())
    unit = "" if found is None else (found[2] or "").replace("i", "")
    if found is None or unit not in UNITS or not 1 <= float(found[1]) * UNITS[unit] < math.inf:
        raise InputError(f"memory is {short(memory)}; give a number of bytes, or a text such as '2GB' or '500MB'.")
    return int(float(found[1]) * UNITS[unit])


@dataclass(frozen=True, eq=False)
class Rows:
    """The rows of a source that tune.

    labels: (N,) positions of columns, of all rows. chosen: ascending; None for all.
    """

    labels: Ints
    chosen: Ints | None

    def bounds(self, n_classes: int) -> tuple[float, float]:
        """Within what class errors, and their mean, on the chosen rows are those on all (see above)."""
        if self.chosen is None:
            return 0.0, 0.0
        counts = [np.bincount(y, minlength=n_classes).astype(float) for y in (self.labels, self.labels[self.chosen])]
        every, some = (c[counts[0] > 0] for c in counts)
        spread = np.where(some < every, 1 - (some - 1) / every, 0.0) / (2 * some)
        k, doubt = len(every), 1 - SURE
        each, mean = np.log(2 * k / doubt) * spread.max(), np.log(2 / doubt) * spread.sum() / k**2
        return float(np.sqrt(each)), float(np.sqrt(mean))


def choose(labels: Ints, n_classes: int, itemsize: int, memory: int | None, seed: int) -> Rows:
    """All rows, or as many as the budget allows, spread evenly over the classes."""
    if memory is None:
        return Rows(labels, None)
    free = memory - BLOCKS - ROW * len(labels)
    most = int(free // (n_classes * (itemsize + WORKING * max(4, min(itemsize, 8)))))
    counts = np.bincount(labels, minlength=n_classes)
    if most >= len(labels):
        return Rows(labels, None)
    sizes = even_sizes(counts, most)
    if most < np.minimum(counts, FEWEST).sum():
        wanted = BLOCKS + ROW * len(labels) + FEWEST * n_classes**2 * (itemsize + WORKING * 8)
        raise InputError(
            f"memory of {memory / 1e9:.3g} GB does not hold {FEWEST} rows of each of {n_classes} classes; give at "
            f"least {np.ceil(wanted / 1e8) / 10:g}GB."
        )
    return Rows(labels, draw(labels, sizes, seed))


def even_sizes(counts: Ints, most: int) -> Ints:
    """Sizes ≤ counts that are as even as can be and sum up to no more than `most`.

    >>> even_sizes(np.array([100, 5, 50]), 45)
    array([20,  5, 20])
    """
    level, left, remaining = 0, most, len(counts)
    for count in np.sort(counts).tolist():
        if remaining * (count - level) > left:
            level += left // remaining
            break
        left -= remaining * (count - level)
        level, remaining = count, remaining - 1
    return np.minimum(counts, level)


@dataclass(frozen=True, eq=False)
class _Chosen:
    """Measures a block: where its chosen rows stand among these, and their scores."""

    chosen: Ints | None

    def __call__(self, block: Block) -> tuple[int, NDArray[Any]]:
        if self.chosen is None:
            return block.start, block.scores
        first, last = np.searchsorted(self.chosen, [block.start, block.start + len(block.scores)])
        return int(first), block.scores[self.chosen[first:last] - block.start]


def gather(source: Source, rows: Rows, on_rows: Callable[[int], None]) -> NDArray[Any]:
    """The scores of the chosen rows, in their order and of their own type."""
    n = len(rows.labels) if rows.chosen is None else len(rows.chosen)
    found: NDArray[Any] | None = None
    for first, part in source.mapped(_Chosen(rows.chosen), on_rows):
        if found is None:
            found = np.empty((n, source.n_classes), part.dtype)
        elif part.dtype != found.dtype:
            found = found.astype(np.result_type(found, part))
        found[first : first + len(part)] = part
    assert found is not None
    return found


class Table:
    """An array whose columns have names."""

    def __init__(self, scores: NDArray[Any], columns: Sequence[Any]) -> None:
        self.scores, self.columns, self.shape = scores, list(columns), scores.shape

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return self.scores if dtype is None else self.scores.astype(dtype, copy=False)


@dataclass(frozen=True, eq=False)
class Gathered:
    """What there is to tune on. scores: with named columns where the source names them. labels: as the source has them.

    rows: which these are. classes: of the columns. columns: of each label as the source has it.
    """

    scores: Any
    labels: NDArray[Any]
    rows: Rows
    classes: Classes
    columns: dict[Any, int]

    @property
    def counts(self) -> NDArray[np.float64]:
        """Rows of each class, of all rows."""
        return np.bincount(self.rows.labels, minlength=len(self.classes)).astype(np.float64)


def prepare(
    source: Source, classes: Any, memory: str | float | None, seed: int, on_rows: Callable[[int], None]
) -> Gathered:
    """Survey the labels and gather what tunes."""
    found = survey(source)
    named = source.columns if classes is None else None
    known = found.classes(source.n_classes, given=classes, columns=named)
    columns = dict(zip(found.distinct.tolist(), found.placed(known).tolist(), strict=True))
    labels = found.encoded(known)
    itemsize = next(iter(source.parts())).numbers.dtype.itemsize
    rows = choose(labels, source.n_classes, itemsize, None if memory is None else as_bytes(memory), seed)
    scores = gather(source, rows, on_rows)
    codes = found.codes if rows.chosen is None else found.codes[rows.chosen]
    table = scores if source.columns is None else Table(scores, source.columns)
    return Gathered(table, found.distinct[codes], rows, known, columns)


def verify(source: Source, given: Gathered, policy: Policy, problem: Problem, on_rows: Callable[[int], None]) -> Policy:
    """The policy with figures that are counted on every row of the source."""
    classes = given.classes
    named = source.columns is not None and classes.named_by(source.columns)
    arranged = source.arranged(classes) if named else source
    counted = confusions(arranged, [unadjusted, policy.decide], given.columns, on_rows)
    assert policy.validation is not None
    assert given.rows.chosen is not None
    sampled = len(given.rows.chosen)
    validation = counted_on(problem, policy.validation, *counted)
    name, (each, mean) = validation.objective, given.rows.bounds(len(classes))
    share = {
        "n_samples": sampled,
        "class_errors_within": each,
        "mean_within": mean,
        "before": policy.validation.before[name],
        "after": policy.validation.after[name],
    }
    return replace(
        policy,
        validation=validation,
        reason=f"{policy.reason}; tuned on {sampled:,} of {len(given.rows.labels):,} rows",
        data={
            **policy.data,
            "digest": arranged.digest_with(given.rows.labels),
            "n_samples": len(given.rows.labels),
            "sample": share,
        },
    )


def counted_on(
    problem: Problem, found: Validation, before: NDArray[np.float64], after: NDArray[np.float64]
) -> Validation:
    """The figures on the rows of two confusion matrices of counts; what is expected of other samples stays."""
    context, totals = problem.context, before.sum(axis=1)
    known = {"weights": context.weights, "groups": context.groups, "class_counts": context.class_counts}
    shared = [in_shares(c.T, totals, problem.shares).T for c in (before, after)]
    objectives: list[str | Objective] = [n for n in STANDARD if n != found.objective]
    objectives.append(problem.objective_spec)
    figures = [
        evaluate_confusion(c, objectives, absent="ignore", class_names=context.class_names, **known) for c in shared
    ]
    on = ClassContext.of(shared[0].sum(axis=1), class_names=context.class_names, **known)
    limits = {}
    for constraint in problem.constraints:
        evaluator = constraint.objective.on(on)
        values = [on_confusion(evaluator, c) for c in shared]
        limits[str(constraint)] = (values[1], constraint.limit(values[0]))
    errors = [[None if np.isnan(e) else float(e) for e in errors_of(c)] for c in (before, after)]
    return replace(
        found,
        before={name: figures[0][name] for name in found.before},
        after={name: figures[1][name] for name in found.after},
        errors_before=errors[0],
        errors_after=errors[1],
        samples=totals.tolist(),
        in_sample=figures[0][found.objective] - figures[1][found.objective],
        feasible=sum(max(0.0, value - limit) for value, limit in limits.values()) <= ROUNDING,
        limits=limits,
    )
