"""Trust: what tuning gained on validation, how sure that is, and where the data are too thin to say."""

from __future__ import annotations

import warnings

import numpy as np

from capri.errors import THIN
from capri.evaluation import STANDARD, evaluate_confusion
from capri.policy import Validation
from capri.posthoc.adjustment import Adjustment, Vector
from capri.posthoc.heldout import Gain
from capri.posthoc.problem import Problem, tally

DEGENERATE = 0.5  # so is predicting fewer than this share of the classes that were predicted before


class ThinClassWarning(UserWarning):
    """Some classes have very few validation samples."""


class DegenerateWarning(UserWarning):
    """Tuning collapsed predictions onto few classes."""


def validate(problem: Problem, adjustment: Adjustment, *, feasible: bool, gain: Gain | None = None) -> Validation:
    """Before and after, on the problem's own samples; with what is gained out of fold, where that was judged."""
    names = dict.fromkeys([*STANDARD, problem.objective_spec.name])
    chosen = [problem.objective_spec if n == problem.objective_spec.name else n for n in names]
    context = {"weights": problem.context.weights, "groups": problem.context.groups}
    context["class_counts"] = problem.context.class_counts
    figures = []
    for predictions in (problem.predict(problem.neutral), problem.predict(adjustment)):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # absent classes were announced when the problem was posed
            confusion = problem.confusion_of(predictions)
            names_of = problem.context.class_names
            figures.append(evaluate_confusion(confusion, chosen, absent="ignore", class_names=names_of, **context))
    before, after = figures
    name = problem.objective_spec.name
    return Validation(
        objective=name,
        before=before,
        after=after,
        errors_before=_listed(problem.errors(problem.neutral)),
        errors_after=_listed(problem.errors(adjustment)),
        samples=tally(problem.y, problem.given, problem.n_classes).tolist(),
        in_sample=before[name] - after[name],
        improvement=None if gain is None else gain.mean,
        interval=None if gain is None else gain.interval,
        feasible=feasible,
    )


def _listed(errors: Vector) -> list[float | None]:
    return [None if np.isnan(e) else float(e) for e in errors]


def warn_if_thin(problem: Problem) -> None:
    """Name the classes whose validation errors rest on a handful of samples."""
    counts = np.bincount(problem.y, minlength=problem.n_classes)
    thin = np.flatnonzero((counts > 0) & (counts < THIN))
    if len(thin):
        names = [repr(problem.context.class_names[k]) for k in thin[:5]]
        more = f" and {len(thin) - 5} more" if len(thin) > 5 else ""
        warnings.warn(
            f"{len(thin)} of {problem.n_classes} classes have fewer than {THIN} validation samples "
            f"({', '.join(names)}{more}); their errors are rough, so keep pooling on and check on held-out data.",
            ThinClassWarning,
            stacklevel=3,
        )


def warn_if_degenerate(problem: Problem, adjustment: Adjustment) -> None:
    """Warn when tuning leaves fewer than half of the classes that were predicted before.

    The spread alone invites that: class errors are all alike where nearly every class is always wrong.
    """
    before, after = (len(np.unique(problem.predict(a))) for a in (problem.neutral, adjustment))
    if after < DEGENERATE * before:
        warnings.warn(
            f"after tuning {problem.objective_spec} only {after} classes are ever predicted (before: {before}). "
            'Add a constraint such as "balanced <= baseline", or tune a mix such as "mix:0.5".',
            DegenerateWarning,
            stacklevel=3,
        )
