"""Trust: what tuning gained on validation, how sure that is, and where the data are too thin to say."""

from __future__ import annotations

import warnings

import numpy as np
from numpy.typing import NDArray

from capri.errors import THIN
from capri.evaluation import STANDARD, evaluate_confusion
from capri.forms import on_confusion
from capri.policy import Validation
from capri.posthoc.adjustment import Adjustment, Vector
from capri.posthoc.problem import Problem, tally_confusion

DEGENERATE = 0.5  # so is predicting fewer than this share of the classes that were predicted before


class ThinClassWarning(UserWarning):
    """Some classes have very few validation samples."""


class DegenerateWarning(UserWarning):
    """Tuning collapsed predictions onto few classes."""


def validate(problem: Problem, adjustment: Adjustment, *, resamples: int = 200, seed: int = 0) -> Validation:
    """Before and after, on the problem's own samples."""
    names = dict.fromkeys([*STANDARD, problem.objective_spec.name])
    chosen = [problem.objective_spec if n == problem.objective_spec.name else n for n in names]
    context = {"weights": problem.context.weights, "groups": problem.context.groups}
    context["class_counts"] = problem.context.class_counts
    first, second = problem.predict(problem.neutral), problem.predict(adjustment)
    figures = []
    for predictions in (first, second):
        confusion = tally_confusion(problem.y, predictions, problem.weight, problem.n_classes)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # absent classes were announced when the problem was posed
            figures.append(
                evaluate_confusion(
                    confusion, chosen, absent="ignore", class_names=problem.context.class_names, **context
                )
            )
    before, after = figures
    name = problem.objective_spec.name
    return Validation(
        objective=name,
        before=before,
        after=after,
        errors_before=_listed(problem.errors(problem.neutral)),
        errors_after=_listed(problem.errors(adjustment)),
        samples=problem.totals.tolist(),
        improvement=before[name] - after[name],
        interval=_interval(problem, first, second, before[name] - after[name], resamples, seed),
        feasible=problem.worth(adjustment).feasible,
    )


def _listed(errors: Vector) -> list[float | None]:
    return [None if np.isnan(e) else float(e) for e in errors]


def _interval(
    problem: Problem,
    first: NDArray[np.int64],
    second: NDArray[np.int64],
    improvement: float,
    resamples: int,
    seed: int,
) -> tuple[float, float] | None:
    """90 % interval of the improvement, over resamples within classes; None without any."""
    if resamples == 0:
        return None
    rng = np.random.default_rng(seed)
    members = problem.members()
    gains = np.empty(resamples)
    for b in range(resamples):
        drawn = np.concatenate([rng.choice(m, len(m)) for m in members])
        y, weight = problem.y[drawn], problem.weight[drawn]
        values = [
            on_confusion(problem.objective, tally_confusion(y, p[drawn], weight, problem.n_classes))
            for p in (first, second)
        ]
        gains[b] = values[0] - values[1]
    # Resampling adds noise to every class, which makes the worst of them look worse, more so where errors lie close
    # together: ranks and spreads are biased. The spread of the resamples is used, around the improvement itself.
    low, middle, high = np.quantile(gains, [0.05, 0.5, 0.95])
    return float(improvement + low - middle), float(improvement + high - middle)


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
