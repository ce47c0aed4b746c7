"""One set of samples, before and after: decisions in, the aggregates of a view out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import bdtr

from capri._checks import InputError
from capri.constraints import Constraint
from capri.evaluation import STANDARD
from capri.forms import ConfusionEvaluator
from capri.objectives import Objective, as_objective
from capri.page.content import Column, Confusions, Errors, Kind, Limit, Pair, View
from capri.policy import UNDECIDED, Policy
from capri.posthoc.adjustment import Adjustment, Vector
from capri.posthoc.heldout import TUNED, UNADJUSTED, Judged
from capri.posthoc.problem import ROUNDING, Problem, tally, tally_confusion
from capri.shares import in_shares
from capri.validation import Validation

Z = 1.6449  # of a 90 % interval
SURE = 0.05  # of the sign test
DRAWS = 200  # behind the interval on test samples
BLOCK = 10_000_000  # adjusted scores at a time
PAIRS = 25  # of classes that are confused, before and after each
WHOLE = 30  # classes whose confusions are shown whole
PART = 20  # classes that are shown of more


@dataclass(frozen=True, eq=False)
class Decided:
    """Samples of a problem with decisions before and after, (n,) each; negative ones are left undecided.

    rows: which of its samples these are. abstains: whether any could have been left undecided.
    """

    kind: Kind
    problem: Problem
    rows: NDArray[np.int64]
    before: NDArray[np.int64]
    after: NDArray[np.int64]
    abstains: bool = False

    @property
    def labels(self) -> NDArray[np.int64]:
        """Their classes (n,), by position."""
        return self.problem.y[self.rows]

    @property
    def given(self) -> Vector:
        """Their weights (n,), as given."""
        return self.problem.given[self.rows]


def by_policy(kind: Kind, policy: Policy, problem: Problem) -> Decided:
    """All samples of a problem, decided by a policy.

    Parameters
    ----------
    kind : {"test", "in sample"}
        Whether the policy has seen them.
    policy : Policy
        Decides after.
    problem : Problem
        The samples.

    Returns
    -------
    Decided
    """
    tuned = Adjustment(policy.strategy.delta, policy.strategy.l)
    before, after = problem.predict(problem.neutral), problem.predict(tuned)
    if policy.thresholds is not None:
        after = _with_undecided(policy, problem, after)
    return Decided(kind, problem, np.arange(problem.n_samples), before, after, policy.thresholds is not None)


def _with_undecided(policy: Policy, problem: Problem, decisions: NDArray[np.int64]) -> NDArray[np.int64]:
    """The decisions, less those that a policy leaves open; block by block, since adjusted scores may be many."""
    some = max(1, BLOCK // problem.n_classes)
    blocks = (slice(start, start + some) for start in range(0, problem.n_samples, some))
    columns = [policy.columns(policy.strategy.adjust(problem.scores[rows])) for rows in blocks]
    return np.where(np.concatenate(columns) < 0, UNDECIDED, decisions)


def by_judged(problem: Problem, judged: Judged) -> Decided:
    """The samples that were judged out of fold.

    Parameters
    ----------
    problem : Problem
        The samples that tuned.
    judged : Judged
        Their decisions by tunings that have not seen them.

    Returns
    -------
    Decided
    """
    order = np.argsort(judged.rows)
    before, after = (judged.decisions[rung][order] for rung in (UNADJUSTED, TUNED))
    return Decided("out of fold", problem, judged.rows[order], before, after)


# -- figures ----------------------------------------------------------------------------------------------------------


def view_of(decided: Decided, objective: str) -> View:
    """Objectives, class errors, confusions and constraints of some samples, before and after.

    Parameters
    ----------
    decided : Decided
        The samples.
    objective : str
        What was tuned for; it is left out where nobody knows it by this name.

    Returns
    -------
    View
    """
    problem, y, given = decided.problem, decided.labels, decided.given
    k, both = problem.n_classes, (decided.before, decided.after)
    samples, kept = tally(y, given, k), decided.after >= 0
    first, second = (_errors(errors_of(decided, d), _effective(y[d >= 0], given[d >= 0], k)) for d in both)
    right, counted = [d == y for d in both], kept & (given > 0)
    fixed = np.bincount(y[counted & ~right[0] & right[1]], minlength=k)
    broken = np.bincount(y[counted & right[0] & ~right[1]], minlength=k)
    share = _ratio(tally(y[kept], given[kept], k), samples) if decided.abstains else None
    before, after = (values_of(decided, d, _wanted(problem, objective)) for d in both)
    return View(
        kind=decided.kind,
        n_samples=int((given > 0).sum()),
        before=before,
        after=after,
        samples=samples.tolist(),
        first=first,
        second=second,
        fixed=fixed.tolist(),
        broken=broken.tolist(),
        clear=[] if decided.abstains else clear(fixed, broken).tolist(),
        decided=None if share is None else _listed(share),
        confusions=confusions(y, *both, given, k),
        limits=[_limit(c, *(values_of(decided, d, [c.objective]) for d in both)) for c in problem.constraints],
    )


def _wanted(problem: Problem, objective: str) -> list[Objective]:
    """The standard objectives, the weighted error where there are weights, and what was tuned for."""
    names = dict.fromkeys([*STANDARD, *(["weighted"] if problem.context.weights is not None else []), objective])
    return [objective_of(problem, name) for name in names if name != objective or is_known(problem, name)]


def _effective(y: NDArray[np.int64], given: Vector, n_classes: int) -> Vector:
    """How many equal samples those of each class are worth (K,); NaN where there are none."""
    return _ratio(tally(y, given, n_classes) ** 2, tally(y, given**2, n_classes))


def _ratio(amounts: Vector, totals: Vector) -> Vector:
    return np.divide(amounts, totals, out=np.full(len(totals), np.nan), where=totals > 0)


def _errors(values: Vector, samples: Vector) -> Errors:
    low, high = wilson(values, samples)
    return Errors(_listed(values), _listed(low), _listed(high))


def _listed(values: Vector) -> Column:
    return [None if np.isnan(v) else float(v) for v in values]


def wilson(share: Vector, n: Vector, z: float = Z) -> tuple[Vector, Vector]:
    """Wilson's interval of shares (K,) of n samples each.

    Parameters
    ----------
    share, n : array of shape (K,)
        NaN gives NaN.
    z : float
        Quantile of the normal distribution.

    Returns
    -------
    (array, array)
        Low and high.

    Examples
    --------
    >>> low, high = wilson(np.array([0.0, 0.5]), np.array([10.0, 10.0]))
    >>> low.round(2), high.round(2)
    (array([0.  , 0.27]), array([0.21, 0.73]))
    """
    n = np.where(n > 0, n, np.nan)
    centre = (share + z**2 / (2 * n)) / (1 + z**2 / n)
    half = z / (1 + z**2 / n) * np.sqrt(share * (1 - share) / n + z**2 / (4 * n**2))
    return np.clip(centre - half, 0.0, 1.0), np.clip(centre + half, 0.0, 1.0)


def clear(fixed: ArrayLike, broken: ArrayLike) -> NDArray[np.bool_]:
    """Is the change of each class more than chance? The sign test on the samples that changed.

    Parameters
    ----------
    fixed, broken : array-like of shape (K,)
        Samples that became right, and wrong.

    Returns
    -------
    array of bool, shape (K,)

    Examples
    --------
    >>> clear([6, 5, 9], [0, 0, 4])
    array([ True, False, False])
    """
    gained, lost = np.asarray(fixed, dtype=np.float64), np.asarray(broken, dtype=np.float64)
    return np.asarray(2 * bdtr(np.minimum(gained, lost), (gained + lost).astype(np.int64), 0.5) < SURE)


def values_of(
    decided: Decided, decisions: NDArray[np.int64], objectives: Sequence[Objective | str], given: Vector | None = None
) -> dict[str, float]:
    """Objectives of some decisions, in the shares of the world; where samples are left undecided, of the others.

    Parameters
    ----------
    decided : Decided
        The samples.
    decisions : array of int, shape (n,)
        What is decided of each.
    objectives : sequence of Objective or name
        Which.
    given : array of shape (n,), optional
        How much each sample counts, if not as it was given.

    Returns
    -------
    dict
        Their values by name.
    """
    problem, kept = decided.problem, decisions >= 0
    y, decisions, k = decided.labels[kept], decisions[kept], problem.n_classes
    counts = (decided.given if given is None else given)[kept]
    weight = in_shares(counts, tally(y, counts, k), problem.shares, y)
    totals = tally(y, weight, k)
    context = problem.context.with_totals(totals)
    errors = np.clip(1 - _ratio(tally(y, weight * (decisions == y), k), totals), 0.0, 1.0)[totals > 0]
    values = {}
    for objective in map(as_objective, objectives):
        evaluator = objective.on(context)
        on_confusion = isinstance(evaluator, ConfusionEvaluator)
        value = evaluator(tally_confusion(y, decisions, weight, k)) if on_confusion else evaluator(errors)
        values[objective.name] = float(value)
    return values


def errors_of(decided: Decided, decisions: NDArray[np.int64]) -> Vector:
    """Class errors (K,) of some decisions, among what is decided; NaN of a class without samples."""
    kept, k = decisions >= 0, decided.problem.n_classes
    y, given, decisions = decided.labels[kept], decided.given[kept], decisions[kept]
    return _ratio(tally(y, given * (decisions != y), k), tally(y, given, k))


def _limit(constraint: Constraint, before: Mapping[str, float], after: Mapping[str, float]) -> Limit:
    name = constraint.objective.name
    limit, value = constraint.limit(before[name]), after[name]
    value_shown, limit_shown = (1 - value, 1 - limit) if constraint.floor else (value, limit)
    return Limit(str(constraint), float(value_shown), float(limit_shown), bool(value <= limit + ROUNDING))


def confusions(
    y: NDArray[np.int64], before: NDArray[np.int64], after: NDArray[np.int64], weight: Vector, n_classes: int
) -> Confusions:
    """Where errors go, before and after.

    Parameters
    ----------
    y, before, after : array of int, shape (n,)
        Classes and decisions; negative ones are left out.
    weight : array of shape (n,)
        How much each sample counts.
    n_classes : int
        K.

    Returns
    -------
    Confusions
    """
    both = [(y[d >= 0], d[d >= 0], weight[d >= 0]) for d in (before, after)]
    kinds, which = np.unique(np.concatenate([y * n_classes + d for y, d, _ in both]), return_inverse=True)
    parts = np.split(which, [len(both[0][0])])
    was, now = (tally(part, mass, len(kinds)) for part, (_, _, mass) in zip(parts, both, strict=True))
    wrong = np.flatnonzero(kinds // n_classes != kinds % n_classes)
    most = [np.argsort(-amount[wrong], kind="stable")[:PAIRS] for amount in (was, now, np.abs(now - was))]
    top = wrong[np.unique(np.concatenate(most))] if len(wrong) else wrong
    top = top[np.argsort(-np.maximum(was, now)[top], kind="stable")]
    pairs = [Pair(int(kinds[i] // n_classes), int(kinds[i] % n_classes), float(was[i]), float(now[i])) for i in top]
    complete = n_classes <= WHOLE
    involved = tally(kinds[wrong] // n_classes, (was + now)[wrong], n_classes)
    involved += tally(kinds[wrong] % n_classes, (was + now)[wrong], n_classes)
    shown = np.arange(n_classes) if complete else np.sort(np.argsort(-involved, kind="stable")[:PART])
    place = np.full(n_classes, len(shown), np.int64)
    place[shown] = np.arange(len(shown))
    size = len(shown) + (not complete)
    tables = [tally_confusion(place[y], place[d], mass, size).tolist() for y, d, mass in both]
    return Confusions(pairs, shown.tolist(), tables[0], tables[1], complete)


def view_of_validation(found: Validation) -> View:
    """What a policy keeps of the samples that tuned it."""
    samples = np.asarray(found.samples, dtype=np.float64)
    first, second = (
        _errors(np.array([np.nan if e is None else e for e in errors]), samples)
        for errors in (found.errors_before, found.errors_after)
    )
    return View("in sample", round(float(samples.sum())), found.before, found.after, samples.tolist(), first, second)


def resampled(decided: Decided, objective: Objective, draws: int = DRAWS, seed: int = 0) -> tuple[float, float]:
    """The 90 % interval of an improvement on samples that tuning has not seen, by samples drawn anew in each class.

    Parameters
    ----------
    decided : Decided
        The samples.
    objective : Objective
        What improves.
    draws, seed : int
        How often they are drawn, and from which seed.

    Returns
    -------
    (float, float)
    """
    rng, y, given = np.random.default_rng(seed), decided.labels, decided.given
    order = np.argsort(y, kind="stable")
    sizes = np.bincount(y, minlength=decided.problem.n_classes)
    starts = np.cumsum(sizes) - sizes
    observed = _improvement(decided, objective, given)
    gains = np.empty(draws)
    for d in range(draws):
        drawn = order[starts[y] + (rng.random(len(y)) * sizes[y]).astype(np.int64)]
        gains[d] = _improvement(decided, objective, tally(drawn, given[drawn], len(y)))
    low, high = observed + np.quantile(gains, [0.05, 0.95]) - gains.mean()  # drawing from draws shifts order statistics
    return float(low), float(high)


def _improvement(decided: Decided, objective: Objective, given: Vector) -> float:
    before, after = (values_of(decided, d, [objective], given)[objective.name] for d in (decided.before, decided.after))
    return before - after


def objective_of(problem: Problem, name: str) -> Objective:
    """The objective of this name: the problem's own, or the registered one."""
    return problem.objective_spec if problem.objective_spec.name == name else as_objective(name)


def is_known(problem: Problem, name: str) -> bool:
    """Whether there is one."""
    try:
        return bool(objective_of(problem, name))
    except InputError:
        return False
