"""Objectives: one number to lower, made of class errors or of the confusion matrix.

Objectives go by name (``"cvar:0.2"``, ``"0.5*balanced+0.5*sdev"``), as objects (``cvar(0.2)``), as any function of the
class errors, or as metrics and scorers of scikit-learn (``balanced_accuracy_score``, ``get_scorer("f1_macro")``). An
objective is added in one place: define it under `@register_objective`, and its name works everywhere. What they are
made of is in `capri.forms`.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import partial, reduce
from numbers import Real
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from capri._checks import InputError, check_matrix, short, shortest
from capri.classes import Classes, all_columns, index_of
from capri.forms import (
    ROUNDING,
    ClassContext,
    ConfusionEvaluator,
    ConfusionForm,
    ConfusionFunction,
    ErrorFunction,
    Evaluator,
    Form,
    LeastForm,
    MarginFunction,
    Moments,
    Vector,
    add,
    scale,
    unit,
)
from capri.metrics import Metric, as_metric, is_scorer_name, refuse_scores

_PLUS = re.compile(r"(?<![0-9.][eE])\+(?![^\[]*\])")  # between terms: not in 1e+3, not inside err[…]
_OF_CLASS = re.compile(r"([^\s+*:\[\]]+)\[(.+)\]")
_MULTIPLE = re.compile(r"([^*\[]+)\*(.+)")
_NAME = re.compile(r"[^\s+*:\[\]]+")
TERMS, LENGTH = 64, 10_000  # of an objective: more is no objective that someone wrote
EVERY, OF_GROUP = "*", "group:"  # in brackets: each class, and a group of classes
MANY_SHOT, FEW_SHOT = 100, 20  # more than 100 training samples: many; fewer than 20: few


@dataclass(frozen=True)
class Objective:
    """A named objective that does not know its classes yet: ``objective.on(context)`` can be evaluated and searched.

    Objectives add and scale: ``0.5 * balanced() + 0.5 * cvar(0.2)``.

    Parameters
    ----------
    name : str
        As users write it and results show it.
    build : function
        From a `ClassContext` to something that can be evaluated: a `Form`, or a function of errors or confusions.
    """

    name: str
    build: Callable[[ClassContext], Evaluator] = field(repr=False, compare=False)

    def on(self, context: ClassContext) -> Evaluator:
        """The objective on these classes.

        Parameters
        ----------
        context : ClassContext
            What is known of the classes: names, shares, weights, ….

        Returns
        -------
        Evaluator
            A function of the errors of the classes that have samples, or of the confusion matrix of all classes.
        """
        evaluator, present = self.build(context), context.present()
        settled = present is context or isinstance(evaluator, ConfusionEvaluator) or isinstance(self.build, _Sum)
        return evaluator if settled else self.build(present)

    def __add__(self, other: Objective) -> Objective:
        if not isinstance(other, Objective):
            return NotImplemented
        return Objective(f"{self.name}+{other.name}", _Sum(_few_enough(self._terms + other._terms)))

    def __rmul__(self, factor: float | Real) -> Objective:
        if not isinstance(factor, Real):
            return NotImplemented
        try:
            number = float(factor)
        except OverflowError:
            number = math.inf
        terms = tuple((number * share, term) for share, term in self._terms)
        if not all(math.isfinite(share) for share, _ in terms):
            raise InputError(f"objective {self.name!r} times {short(factor)}: the factor must be a finite number.")
        name = "+".join(f"{shortest(number)}*{term}" for term in _PLUS.split(self.name))
        return Objective(name, _Sum(terms))

    def __str__(self) -> str:
        return self.name

    @property
    def goes_by_name(self) -> bool:
        """Is it what its name says, wherever it comes from?"""
        builds = [term.build for _, term in self._terms]
        return all(isinstance(build, partial) and build.func is _registered for build in builds)

    @property
    def _terms(self) -> tuple[tuple[float, Objective], ...]:
        return self.build.terms if isinstance(self.build, _Sum) else ((1.0, self),)


# What objectives are built by. Functions of the module, so that an objective can be pickled as its parts can.


@dataclass(frozen=True)
class _Sum:
    """Σ factor · objective. It is flat, however it was written, and each term settles which classes it sees."""

    terms: tuple[tuple[float, Objective], ...]

    def __call__(self, context: ClassContext) -> Evaluator:
        return reduce(add, (scale(factor, objective.on(context)) for factor, objective in self.terms))


def _few_enough(terms: tuple[Any, ...]) -> tuple[Any, ...]:
    if len(terms) > TERMS:
        raise InputError(f"an objective may have {TERMS} terms, and this one has more; give a function instead.")
    return terms


def _of_errors(function: Callable[[Vector], float], name: str, _: ClassContext) -> Evaluator:
    return ErrorFunction(function, name)


def _of_confusions(function: Callable[[NDArray[np.float64]], float], name: str, _: ClassContext) -> Evaluator:
    return ConfusionFunction(function, name)


# --------------------------------------------------------------------------------------------------------------------
# The registry


@dataclass(frozen=True)
class _Entry:
    make: Callable[..., Any]
    on: Literal["classes", "errors", "confusion"]
    parameter: str | None
    description: str


_REGISTRY: dict[str, _Entry] = {}


def register_objective(
    name: str, *, on: Literal["classes", "errors", "confusion"] = "errors", parameter: str | None = None
) -> Callable[[Callable[..., Any]], Callable[..., Objective]]:
    """Register an objective under a name; the decorated function becomes its constructor.

    Parameters
    ----------
    name : str
        Without spaces and ``+ * : [ ]``.
    on : {"errors", "confusion", "classes"}
        What the function takes. "errors": ``f(errors) -> float``, with the errors of the classes that have samples.
        "confusion": ``f(confusion) -> float``, with counts; rows are true classes, and zeros for one without samples.
        "classes": ``f(context) -> Form``, with the `ClassContext` (names, shares, weights, …).
    parameter : str, optional
        The name of a parameter, which the function takes as its second argument; the objective then reads
        ``"name:value"``, or ``"name[value]"`` where the parameter is called "class".

    Returns
    -------
    callable
        The decorator.

    Examples
    --------
    >>> from capri.forms import ClassContext
    >>> @register_objective("range")
    ... def error_range(errors):
    ...     "The gap between the worst and the best class."
    ...     return errors.max() - errors.min()
    >>> error_range().on(ClassContext.of([1, 1, 1]))(np.array([0.1, 0.5, 0.2]))
    0.4
    >>> unregister_objective("range")
    """

    def decorate(function: Callable[..., Any]) -> Callable[..., Objective]:
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise InputError(f"objective name {name!r} cannot be parsed; leave out spaces and + * : [ ].")
        if name in _REGISTRY:
            raise InputError(f"objective {name!r} is registered already; choose another name or unregister it first.")
        check_function(function)
        if on not in ("classes", "errors", "confusion"):
            raise InputError(f"on is {on!r}; it must be 'classes', 'errors' or 'confusion'.")
        _REGISTRY[name] = _Entry(function, on, parameter, (function.__doc__ or "").strip().split("\n")[0])

        def constructor(*args: Any) -> Objective:
            return _construct(name, *args)

        constructor.__doc__, constructor.__name__ = function.__doc__, getattr(function, "__name__", name)
        return constructor

    return decorate


def check_function(function: Any) -> None:
    """Refuse what cannot be called, before a search does."""
    if not callable(function):
        raise InputError(f"an objective is a function, and {short(function)} is no function; give one.")


def unregister_objective(name: str) -> None:
    """Forget a registered objective.

    Parameters
    ----------
    name : str
        Its name; one that is not registered is no error.
    """
    _REGISTRY.pop(name, None)


def objective_names() -> dict[str, str]:
    """Every objective that has a name.

    Returns
    -------
    dict
        From names (with the parameter, as in "cvar:a") to what they mean.
    """
    return {_label(n, e.parameter) if e.parameter else n: e.description for n, e in _REGISTRY.items()}


def _label(name: str, parameter: Any) -> str:
    return f"{name}[{parameter}]" if _REGISTRY[name].parameter == "class" else f"{name}:{parameter}"


def _construct(name: str, *args: Any) -> Objective:
    entry = _REGISTRY[name]
    if len(args) != (entry.parameter is not None):
        wants = f"a parameter, as in '{_label(name, entry.parameter)}'" if entry.parameter else "no parameter"
        raise InputError(f"objective {name!r} takes {wants}; got {args or 'none'}.")
    return Objective(_label(name, args[0]) if args else name, partial(_registered, name, args))


def _registered(name: str, args: tuple[Any, ...], context: ClassContext) -> Evaluator:
    if name not in _REGISTRY:
        raise InputError(
            f"objective {name!r} is not registered in this process; register it in a module that is imported there, or "
            "give the function itself."
        )
    entry = _REGISTRY[name]
    if entry.on == "classes":
        form = entry.make(context, *args)
        if not isinstance(form, Evaluator):
            raise InputError(f"objective {name!r} on classes must return a form; got {type(form).__name__}.")
        return form
    wrap = ErrorFunction if entry.on == "errors" else ConfusionFunction
    return wrap(lambda x: entry.make(x, *args), _label(name, args[0]) if args else name)


ObjectiveLike: TypeAlias = str | Objective | Callable[..., float]


def as_objective(objective: ObjectiveLike) -> Objective:
    """An objective from its name, from any function of the class errors, or from a metric.

    A metric is a function ``metric(y_true, y_pred)`` of labels, or a scikit-learn scorer made of one. Where greater is
    better, the objective is 1 − metric. A scorer says whether greater is better; a bare metric says it by its name,
    which ends in ``_score`` or ``_corrcoef`` if so, and in ``_loss`` or ``_error`` if not. Accuracy, balanced
    accuracy, macro and weighted F1, κ and Matthews' correlation are objectives of capri and are searched as such. Any
    other metric is called again for every confusion matrix that the search meets, which takes long.

    Parameters
    ----------
    objective : str, Objective or function
        A name such as "cvar:0.2", a sum such as "0.5*balanced+0.5*sdev", a function of the class errors, or a metric.

    Returns
    -------
    Objective

    Raises
    ------
    InputError
        Where the name is unknown; the message suggests one that is near.

    Examples
    --------
    >>> as_objective("0.5*balanced + 0.5*cvar:0.2").name
    '0.5*balanced+0.5*cvar:0.2'
    >>> from sklearn.metrics import cohen_kappa_score
    >>> from capri import evaluate
    >>> evaluate([0, 0, 1, 1], [0, 1, 1, 1], 2, [cohen_kappa_score])  # 1 − κ
    {'cohen_kappa_score': 0.5}
    """
    if isinstance(objective, Objective):
        return objective
    if callable(objective):
        if (metric := as_metric(objective)) is not None:
            return _from_metric(metric)
        name = str(getattr(objective, "__name__", "custom"))
        name = f"own {name}" if name in _REGISTRY else name
        return Objective(name, partial(_of_errors, objective, name))
    if not isinstance(objective, str):
        raise InputError(f"objective is {objective!r}; give a name such as 'balanced' or 'cvar:0.2', or a function.")
    if len(objective) > LENGTH:
        raise InputError(f"objective {short(objective)} is longer than {LENGTH} characters; give a function instead.")
    terms = _few_enough(tuple(_PLUS.split(objective)))
    return reduce(operator.add, map(_parse_term, terms))


#: Objectives that go by the name of a quality and are 1 − that quality: a floor can be asked of them, ``kappa >= 0.6``.
QUALITIES = {"precision", "recall", "f1", "gmean", "min_recall", "macro_f1", "weighted_f1", "kappa", "mcc"}


def quality_of(objective: Objective) -> str | None:
    """The quality by whose name an objective goes; None for errors, and for sums and multiples."""
    bare = re.sub(r"\[.+\]$", "", objective.name)
    return bare if bare in QUALITIES and len(_PLUS.split(objective.name)) == 1 else None


#: Metrics of scikit-learn that are 1 − these objectives, or these themselves.
_OURS = {
    "accuracy_score": "plain",
    "zero_one_loss": "plain",
    "balanced_accuracy_score": "balanced",
    "f1_score(average='macro')": "macro_f1",
    "f1_score(average='weighted')": "weighted_f1",
    "cohen_kappa_score": "kappa",
    "matthews_corrcoef": "mcc",
}


def _from_metric(metric: Metric) -> Objective:
    theirs = str(getattr(metric.function, "__module__", "")).startswith("sklearn.metrics.")
    if theirs:
        refuse_scores(metric.function.__name__)
    return Objective(metric.name, partial(_of_metric, metric, _OURS.get(metric.name) if theirs else None))


def _of_metric(metric: Metric, ours: str | None, context: ClassContext) -> Evaluator:
    # An absent class that is predicted counts in theirs.
    return _construct(ours).build(context) if ours and context.shares.all() else metric.on(context)


def _parse_term(text: str) -> Objective:
    text, factors = text.strip(), []
    while match := _MULTIPLE.fullmatch(text):
        try:
            factors.append(float(match[1]))
        except ValueError:
            raise InputError(f"objective term {text!r}: {match[1]!r} is not a number.") from None
        text = match[2].strip()
    return reduce(lambda objective, factor: factor * objective, reversed(factors), _parse_name(text))


def _parse_name(text: str) -> Objective:
    if (match := _OF_CLASS.fullmatch(text)) and match[1] in _REGISTRY and _REGISTRY[match[1]].parameter == "class":
        return _construct(match[1], match[2].strip())
    name, colon, parameter = (part.strip() for part in text.partition(":"))
    if name not in _REGISTRY:
        refuse_scores(name)
        near = get_close_matches(name, _REGISTRY, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(objective_names())}."
        if is_scorer_name(name):
            hint += f" For scikit-learn's scorer of this name pass sklearn.metrics.get_scorer({name!r})."
        raise InputError(f"unknown objective {short(name)}; {hint}")
    return _construct(name, parameter) if colon else _construct(name)


# --------------------------------------------------------------------------------------------------------------------
# The objectives (Appendix A of the paper, and what users expect besides)


def tail_size(n_classes: int, a: float) -> int:
    """⌈K·a⌉, safe against 100·0.07 > 7 in floating point."""
    return max(1, math.ceil(n_classes * a - 1e-9))


def _number(value: Any, name: str, low: float, high: float, *, open_low: bool = False) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        raise InputError(f"{name} is {short(value)}; it must be a number.") from None
    if not (low < number <= high if open_low else low <= number <= high):
        bracket = "(" if open_low else "["
        raise InputError(f"{name} is {number:g}; it must lie in {bracket}{low:g}, {high:g}].")
    return number


def _linear(coefficients: ArrayLike) -> Form:
    return Form(np.asarray(coefficients, dtype=np.float64))


def _ranked(ranks: Vector, smooth_ranks: Vector | None = None, groups: NDArray[np.int64] | None = None) -> Form:
    groups = np.arange(len(ranks)) if groups is None else groups
    return Form(np.zeros(len(groups)), 0.0, ranks, groups, smooth_ranks)


@register_objective("plain", on="classes")
def plain(classes: ClassContext) -> Form:
    """Overall error, Σ_k π_k Err_k with the shares of the evaluation set."""
    return _linear(classes.shares)


@register_objective("balanced", on="classes")
def balanced(classes: ClassContext) -> Form:
    """Mean of the class errors, (1/K) Σ_k Err_k."""
    return _linear(np.full(classes.n_classes, 1 / classes.n_classes))


@register_objective("weighted", on="classes")
def weighted(classes: ClassContext) -> Form:
    """Weighted error, (1/K) Σ_k ω_k Err_k with Σ_k ω_k = K."""
    if classes.weights is None:
        raise InputError("objective 'weighted' needs {argument}: one test-time weight per class.", argument="weights")
    if classes.weights.sum() == 0:
        raise InputError("weights sums to 0 over the classes that have samples; give one of them a positive weight.")
    return _linear(classes.weights / classes.weights.sum())


@register_objective("sdev", on="classes")
def sdev(classes: ClassContext) -> Form:
    """Population standard deviation of the class errors."""
    return Form(np.zeros(classes.n_classes), deviation=1.0)


@register_objective("quantile", on="classes", parameter="a")
def quantile(classes: ClassContext, a: Any) -> Form:
    """The ⌈K·a⌉-th worst class error, 0 < a ≤ 1."""
    k = classes.n_classes
    rank = tail_size(k, _number(a, "quantile's a", 0, 1, open_low=True)) - 1
    width = 1 + k // 40  # the smooth twin averages over neighbours in rank, a triangle of this half-width
    triangle = np.maximum(0.0, 1 - np.abs(np.arange(k) - rank) / width)
    return _ranked(unit(k, rank), triangle / triangle.sum())


@register_objective("cvar", on="classes", parameter="a")
def cvar(classes: ClassContext, a: Any) -> Form:
    """The mean of the ⌈K·a⌉ worst class errors, 0 < a ≤ 1."""
    k = classes.n_classes
    size = tail_size(k, _number(a, "cvar's a", 0, 1, open_low=True))
    return _ranked(np.where(np.arange(k) < size, 1 / size, 0.0))


@register_objective("mix", on="classes", parameter="λ")
def mix(classes: ClassContext, lam: Any) -> Form:
    """λ·plain + (1 − λ)·sdev, 0 ≤ λ ≤ 1: the paper's error-deviation trade-off."""
    weight = _number(lam, "mix's λ", 0, 1)
    return _linear(weight * classes.shares) + Form(np.zeros(classes.n_classes), deviation=1 - weight)


@register_objective("worst", on="classes")
def worst(classes: ClassContext) -> Form:
    """The worst class error."""
    return _ranked(unit(classes.n_classes, 0))


@register_objective("min_recall", on="classes")
def min_recall(classes: ClassContext) -> Form:
    """1 − the least recall of a class, which is the worst class error."""
    return _ranked(unit(classes.n_classes, 0))


@register_objective("gmean", on="classes")
def gmean(classes: ClassContext) -> Form:
    """1 − the geometric mean of the recalls."""
    return Form(np.zeros(classes.n_classes), geometric=1.0)


@register_objective("worst_group", on="classes")
def worst_group(classes: ClassContext) -> Form:
    """The worst mean error of a group of classes."""
    if classes.groups is None:
        raise InputError("objective 'worst_group' needs {argument}: the group of each class.", argument="groups")
    _, index = np.unique(classes.groups, return_inverse=True)
    return _ranked(unit(int(index.max()) + 1, 0), groups=index.astype(np.int64))


def _shot(classes: ClassContext, name: str, chosen: Callable[[Vector], NDArray[np.bool_]]) -> Form:
    if classes.class_counts is None:
        raise InputError(
            f"objective {name!r} needs {{argument}}: the training samples of each class.", argument="class_counts"
        )
    inside = chosen(classes.class_counts)
    if not inside.any():
        raise InputError(f"objective {name!r}: no class has that many training samples.")
    return _linear(inside / inside.sum())


@register_objective("many", on="classes")
def many(classes: ClassContext) -> Form:
    """Mean error of the classes with more than 100 training samples."""
    return _shot(classes, "many", lambda n: n > MANY_SHOT)


@register_objective("medium", on="classes")
def medium(classes: ClassContext) -> Form:
    """Mean error of the classes with 20 to 100 training samples."""
    return _shot(classes, "medium", lambda n: (n >= FEW_SHOT) & (n <= MANY_SHOT))


@register_objective("few", on="classes")
def few(classes: ClassContext) -> Form:
    """Mean error of the classes with fewer than 20 training samples."""
    return _shot(classes, "few", lambda n: n < FEW_SHOT)


@register_objective("err", on="classes", parameter="class")
def class_error(classes: ClassContext, which: Any) -> Form:
    """The error of a class, of the worst, or of a group: ``err[3]``, ``err[cat]``, ``err[*]``, ``err[group:big]``."""
    return _missed(classes, "err", which)


@register_objective("recall", on="classes", parameter="class")
def recall(classes: ClassContext, which: Any) -> Form:
    """1 − the recall of a class, the least, or a group's: ``recall[cat]``, ``recall[*]``, ``recall[group:big]``."""
    return _missed(classes, "recall", which)


@register_objective("precision", on="classes", parameter="class")
def precision(classes: ClassContext, which: Any) -> Evaluator:
    """1 − the precision of a class, the least of all, or a group's: ``precision[cat]``, ``precision[*]``, ….

    A class that is never predicted has precision 0, as in scikit-learn: to give a class up is no way to keep a floor
    on its precision.
    """
    if (groups := _together(classes, "precision", which)) is not None:
        return LeastForm("precision", groups)
    return ConfusionForm.of(classes.n_classes, precision=-_indicator(classes, "precision", which), constant=1.0)


@register_objective("f1", on="classes", parameter="class")
def f1(classes: ClassContext, which: Any) -> Evaluator:
    """1 − the F1 of a class, the least of all, or a group's: ``f1[cat]``, ``f1[*]``, ``f1[group:big]``."""
    if (groups := _together(classes, "f1", which)) is not None:
        return LeastForm("f1", groups)
    return ConfusionForm.of(classes.n_classes, f1=-_indicator(classes, "f1", which), constant=1.0)


def _missed(classes: ClassContext, name: str, which: Any) -> Form:
    """The error of a class, of the worst class, or of all samples of a group of classes."""
    groups = _together(classes, name, which)
    if groups is None:
        return _linear(_indicator(classes, name, which))
    if str(which) == EVERY:
        return _ranked(unit(classes.n_classes, 0))
    inside = classes.shares * (groups >= 0)
    return _linear(inside / inside.sum())


def of_class(quality: str, name: str) -> Objective:
    """``quality[name]``, whatever the name holds: it is not read as text."""
    return _construct(quality, name)


def classes_meant(name: str, which: str, classes: ClassContext) -> list[NDArray[np.bool_]]:
    """The classes (K,) that ``name[which]`` speaks of: each by itself where it is "*", all of a group, or one."""
    groups = _together(classes, name, which)
    if groups is None:
        return [_indicator(classes, name, which) > 0]
    return [groups == g for g in range(int(groups.max()) + 1)]


def _together(classes: ClassContext, name: str, which: Any) -> NDArray[np.int64] | None:
    """(K,) the group of each class, −1 for none: each class by itself, or one group; None where one class is meant."""
    present, text = classes.shares > 0, str(which)
    if text in classes.class_names or not (text == EVERY or text.startswith(OF_GROUP)):
        return None
    if text == EVERY:
        return np.where(present, np.cumsum(present) - 1, -1)
    if classes.groups is None:
        raise InputError(f"{name}[{which}] needs {{argument}}: the group of each class.", argument="groups")
    wanted = text.removeprefix(OF_GROUP).strip()
    inside = present & (np.asarray(classes.groups).astype(str) == wanted)
    if not inside.any():
        known = ", ".join(sorted(set(map(str, classes.groups))))
        raise InputError(f"{name}[{which}]: no such group with samples; there are {short(known)[1:-1]}.")
    return np.where(inside, 0, -1)


def _indicator(classes: ClassContext, name: str, which: Any) -> Vector:
    """(K,): 1 at the class that is named or, where names are not numbers themselves, numbered."""
    names, numbers = classes.class_names, classes.index.tolist()
    if str(which) in names:
        at = names.index(str(which))
    elif not all(n.isdigit() for n in names) and str(which).isdigit() and int(which) in numbers:
        at = numbers.index(int(which))
    else:
        at = -1
    if at < 0 or classes.shares[at] == 0:
        raise InputError(
            f"{name}[{which}]: no such class with samples; give an index 0 … {max(numbers)} or a class name."
        )
    return unit(classes.n_classes, at)


@register_objective("macro_f1", on="classes")
def macro_f1(classes: ClassContext) -> ConfusionForm:
    """1 − macro-averaged F1."""
    present = classes.shares > 0
    return ConfusionForm.of(classes.n_classes, f1=-(present / present.sum()), constant=1.0)


@register_objective("weighted_f1", on="classes")
def weighted_f1(classes: ClassContext) -> ConfusionForm:
    """1 − F1 averaged with the share of each class."""
    return ConfusionForm.of(classes.n_classes, f1=-classes.shares, constant=1.0)


@register_objective("kappa", on="classes")
def kappa(_: ClassContext) -> MarginFunction:
    """1 − Cohen's κ: the error, as a share of the error of decisions by chance."""
    return MarginFunction(_kappa)


def _kappa(moments: Moments) -> Any:
    by_chance = 1 - moments.chance
    return np.where(by_chance > ROUNDING, (1 - moments.hits) / np.maximum(by_chance, ROUNDING), 0.0)


@register_objective("mcc", on="classes")
def mcc(_: ClassContext) -> MarginFunction:
    """1 − Matthews' correlation of decisions and classes."""
    return MarginFunction(_mcc)


def _mcc(moments: Moments) -> Any:
    decided, true = 1 - moments.decided, 1 - moments.true
    spread = np.sqrt(np.maximum(decided, ROUNDING) * max(true, ROUNDING))
    varied = (decided > ROUNDING) & (true > ROUNDING)
    return np.where(varied, 1 - (moments.hits - moments.chance) / spread, 1.0)


def expected_cost(costs: ArrayLike, name: str = "cost") -> Objective:
    """Mean cost per sample under a cost matrix.

    Parameters
    ----------
    costs : array-like of shape (K, K)
        ``costs[i, j]`` is the cost of predicting class j on a sample of class i. A DataFrame goes by its labels.
    name : str
        The objective's name, by which several costs are told apart.

    Returns
    -------
    Objective

    Examples
    --------
    >>> from capri.evaluation import evaluate
    >>> evaluate([0, 0, 1, 1], [0, 0, 0, 1], 2, [expected_cost([[0, 1], [5, 0]])])
    {'cost': 1.25}
    """
    matrix = check_matrix(costs, "costs", "n_classes", "n_classes").astype(np.float64)
    if matrix.shape[0] != matrix.shape[1]:
        raise InputError(f"costs must be a square matrix, one row per true class; got shape {matrix.shape}.")
    labels = {"rows": index_of(costs), "columns": all_columns(costs)}
    return Objective(name, partial(_cost, matrix, labels))


def _cost(
    matrix: NDArray[np.float64], labels: Mapping[str, Sequence[Any] | None], classes: ClassContext
) -> ConfusionForm:
    k = classes.n_classes
    if len(matrix) != k:
        raise InputError(f"costs is {matrix.shape} for {k} classes; give one row and column per class.")
    known, orders = Classes.of(classes.class_names), []
    for side, keys in labels.items():
        numbered = keys is None or (list(keys) == list(range(k)) and not known.named_by(keys))
        orders.append(range(k) if keys is None or numbered else known.positions(keys, f"the {side} of costs"))
    return ConfusionForm.of(k, costs=matrix[np.ix_(*orders)] / classes.total)


def confusion_objective(function: Callable[[NDArray[np.float64]], float], name: str | None = None) -> Objective:
    """An objective from any function of the confusion matrix.

    Parameters
    ----------
    function : callable
        From the counts (K, K), where rows are true classes and columns predicted ones, to a number to be lowered.
    name : str, optional
        The objective's name; the function's by default.

    Returns
    -------
    Objective

    Examples
    --------
    >>> from capri import evaluate
    >>> def missed(confusion):
    ...     return confusion[1, 0] / confusion[1].sum()
    >>> evaluate([0, 1, 1, 1], [0, 0, 0, 1], 2, [confusion_objective(missed)])
    {'missed': 0.6666666666666666}
    """
    check_function(function)
    name = name or str(getattr(function, "__name__", "custom"))
    return Objective(name, partial(_of_confusions, function, name))
