"""Trust: what tuning gained on validation, how sure that is, and where the data are too thin to say."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np

from capri.errors import THIN
from capri.evaluation import STANDARD
from capri.objectives import Objective, as_objective
from capri.posthoc.adjustment import Adjustment, Vector
from capri.posthoc.heldout import TUNED, Gain
from capri.posthoc.problem import Problem, tally
from capri.validation import Validation

NOTHING: Mapping[str, Gain] = MappingProxyType({})  # was judged out of fold
DEGENERATE = 0.5  # so is predicting fewer than this share of the classes that were predicted before


class ThinClassWarning(UserWarning):
    """Some classes have very few validation samples."""


class DegenerateWarning(UserWarning):
    """Tuning collapsed predictions onto few classes."""


def validate(
    problem: Problem,
    adjustment: Adjustment,
    *,
    feasible: bool,
    gains: Mapping[str, Gain] = NOTHING,
    beside: Sequence[Objective] = (),
) -> Validation:
    """Before and after, on the problem's own samples; with what each rung gains out of fold, where that was judged.

    beside: objectives to tell of beside the standard ones and the tuned one.
    """
    given = {objective.name: objective for objective in (*beside, problem.objective_spec)}
    names = dict.fromkeys([*STANDARD, *given])
    chosen = {name: as_objective(given.get(name, name)).on(problem.context) for name in names}
    decisions = [problem.predict(a) for a in (problem.neutral, adjustment)]
    before, after = (dict(zip(chosen, problem.values_of(d, [*chosen.values()]), strict=True)) for d in decisions)
    reached = problem.values_of(decisions[1], [bound.evaluator for bound in problem.bounds])
    name, gain = problem.objective_spec.name, gains.get(TUNED)
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
        ladder={rung: (g.mean, *g.interval) for rung, g in gains.items()},
        limits={b.text: (v, b.limit) for b, v in zip(problem.bounds, reached, strict=True)},
        class_names=problem.context.class_names,
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
            stacklevel=4,
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
