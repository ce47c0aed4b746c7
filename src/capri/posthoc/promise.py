"""Promises: constraints that hold on future samples with a stated confidence, by learning first and testing then.

The samples are divided at random. One half tunes a path of policies, from floors that are tightened by several standard
errors down to the floors as asked. The other half, which no policy has seen, tests them in an order that the first half
has settled: as long as a policy's floors are all proved, the next is tried, and the first failure ends it. A floor is
proved by an exact binomial test of the hypothesis that it is broken,

    p = P[Bin(trials, floor) ≥ hits] ≤ 1 − confidence,

and a policy if all its floors are (intersection–union test), so that the chance that any policy on the path is proved
wrongly is at most 1 − confidence (fixed-sequence testing; Angelopoulos et al., "Learn then test", 2021).

Recall: hits among the samples of a class. Precision: hits among the samples decided for it. F1 ≥ f is the same as
TP/(TP + FP + FN) ≥ f/(2 − f): hits among the samples that are of the class or decided for it. The plain error: hits
among all. Floors on the last three are about the shares of classes among the samples, recall about no shares but those
within a group.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.stats import beta, binom

from capri._checks import InputError, InputWarning, Ints, shortest
from capri.constraints import Constraint, as_constraint
from capri.forms import ClassContext
from capri.objectives import EVERY, classes_meant, of_class
from capri.sampling import halves
from capri.sentences import percent

Quality: TypeAlias = Literal["recall", "precision", "f1", "plain"]

TIGHTER = (6.0, 4.5, 3.5, 2.5, 2.0, 1.5, 1.0, 0.5, 0.0)  # standard errors, by which floors on the path are raised
CLOSEST = 0.25  # of the way from a floor to 1 is left at least
LEAST_VARIANCE = 0.01  # of a floor near 0 or 1
SAME_SHARES = 1e-6
MANY = 50  # classes, beyond which a floor for each of them is raised by one amount for all
SHOWN = 5  # floors that are not proved
MOST = 10**9  # samples, beyond which no number would do
_PARTS = re.compile(r"(recall|err|precision|f1)\[(.+)\]")
_WHOLE = {"worst": "recall", "min_recall": "recall", "plain": "plain"}


class PromiseWarning(InputWarning):
    """What was asked cannot be promised on these samples."""


@dataclass(frozen=True, eq=False)
class Requirement:
    """A floor on a rate of hits.

    constraint: the text of which it is a part. of: the class by its name, "" for a group or all. classes: (K,) those
    concerned. floor: of the quality.
    """

    constraint: str
    name: str
    of: str
    quality: Quality
    classes: NDArray[np.bool_]
    floor: float

    def count(self, y: Ints, decisions: Ints) -> tuple[int, int]:
        """Hits and trials."""
        true, decided, right = self.classes[y], self.classes[decisions], y == decisions
        trials = {
            "recall": true, "precision": decided, "f1": true | decided, "plain": np.ones(len(y), bool),
        }[self.quality]  # fmt: skip
        return int((trials & right).sum()), int(trials.sum())

    @property
    def rate(self) -> float:
        """The floor, of hits among trials."""
        return self.floor / (2 - self.floor) if self.quality == "f1" else self.floor

    def of_rate(self, rate: float) -> float:
        """The quality that has this rate of hits."""
        return 2 * rate / (1 + rate) if self.quality == "f1" else rate

    def p_value(self, hits: int, trials: int) -> float:
        """The largest chance of so many hits where the floor is broken."""
        return float(binom.sf(hits - 1, trials, self.rate)) if trials else 1.0


def requirements(constraints: Sequence[Constraint], classes: ClassContext) -> list[Requirement]:
    """The floors that constraints come down to; refused where one cannot be tested exactly."""
    if not constraints:
        raise InputError(
            "{argument} is a promise about constraints, and there are none; give some, such as 'recall[*] >= 0.5'.",
            argument="guarantee",
        )
    return [part for constraint in constraints for part in _parts(constraint, classes)]


def _parts(constraint: Constraint, classes: ClassContext) -> list[Requirement]:
    name, text = constraint.objective.name, str(constraint)
    if constraint.relative:
        raise InputError(f"constraint '{text}' cannot be promised: a promise needs a number, not the baseline.")
    floor = constraint.bound if constraint.floor else 1 - constraint.bound
    if not 0 <= floor <= 1:
        raise InputError(f"constraint '{text}' cannot be promised: it is no share between 0 and 1.")
    match = _PARTS.fullmatch(name)
    if match is None and name not in _WHOLE:
        raise InputError(
            f"constraint '{text}' cannot be promised: there are exact tests for recall[…], err[…], precision[…], "
            "f1[…], worst, min_recall and plain."
        )
    if match is None:
        quality, meant = _WHOLE[name], [np.ones(classes.n_classes, bool)] if name == "plain" else each_class(classes)
    else:
        quality = match[1].replace("err", "recall")
        meant = classes_meant(match[1], match[2], classes)
    if quality == "f1" and any(mask.sum() > 1 for mask in meant):
        raise InputError(f"constraint '{text}' cannot be promised: the F1 of a group has no exact test.")
    parts = []
    for mask in meant:
        single = classes.class_names[int(mask.argmax())] if mask.sum() == 1 else ""
        called = "accuracy" if quality == "plain" else f"{quality}[{single or (match or [''] * 3)[2]}]"
        parts.append(Requirement(text, called, single, quality, mask, floor))  # type: ignore[arg-type]
    return parts


def each_class(classes: ClassContext) -> list[NDArray[np.bool_]]:
    """Each class that has samples by itself."""
    return [np.arange(classes.n_classes) == k for k in np.flatnonzero(classes.shares > 0)]


def refuse_other_shares(
    needed: Sequence[Requirement], seen: NDArray[np.float64], shares: NDArray[np.float64] | None
) -> None:
    """What depends on shares can be tested on samples in the shares of the world alone.

    Precision, F1 and accuracy depend on those of all classes, the recall of a group on those of its classes.
    """
    about = [] if shares is None else [part for part in needed if _in_other_shares(part, seen, shares)]
    if about:
        raise InputError(
            f"constraint '{about[0].constraint}' depends on the shares of the classes, and those of the world are said "
            "to be others than those of these samples; test it in these shares with {argument}, or ask for the recall "
            "of classes.",
            argument="target_shares",
            value="validation",
        )


def _in_other_shares(part: Requirement, *shares: NDArray[np.float64]) -> bool:
    one, other = (mass[part.classes] if part.quality == "recall" else mass for mass in shares)
    return not np.allclose(one / one.sum(), other / other.sum(), atol=SAME_SHARES)


def divided(needed: Sequence[Requirement], labels: Ints, n_classes: int, seed: int) -> tuple[Ints, Ints]:
    """Positions of the samples that tune and of those that test, at random; within classes where recall alone counts.

    What depends on shares must see them vary as they do among the samples.
    """
    if all(part.quality == "recall" for part in needed):
        parts = halves(labels, n_classes, seed)
    else:
        order = np.random.default_rng(seed).permutation(len(labels))
        parts = order[: len(order) // 2], order[len(order) // 2 :]
    tuning, testing = (np.sort(part) for part in parts)
    if len(np.unique(labels[tuning])) < 2:
        raise InputError("there are too few samples to tune on some and to test on others; a promise needs more.")
    return tuning, testing


def stricter(constraints: Sequence[Constraint], needed: Sequence[Requirement], tuning: Ints) -> list[list[Constraint]]:
    """The path: constraints whose floors are raised by fewer and fewer standard errors, down to none.

    tuning: the labels of the samples that tune, of which there are about as many as of those that test.
    """
    expected = [float(part.classes[tuning].sum()) for part in needed]
    spread = [max(part.floor * (1 - part.floor), LEAST_VARIANCE) for part in needed]
    errors = [np.sqrt(s / n) if n else np.inf for s, n in zip(spread, expected, strict=True)]
    return [[c for constraint in constraints for c in _raised(constraint, needed, errors, z)] for z in TIGHTER]


def _raised(
    constraint: Constraint, needed: Sequence[Requirement], errors: Sequence[float], z: float
) -> list[Constraint]:
    """One constraint for each floor, or one for all of many; raised within what is left to 1."""
    own = [(part, e) for part, e in zip(needed, errors, strict=True) if part.constraint == str(constraint)]
    floor = own[0][0].floor
    own = [(part, e) for part, e in own if e < np.inf]  # no sample of the others tunes
    if not own:
        return []
    single = len(own) == 1 or len(own) > MANY
    steps = [float(np.median([e for _, e in own]))] if single else [e for _, e in own]
    higher = [min(floor + z * step, 1 - CLOSEST * (1 - floor)) for step in steps]
    if single:
        return [replace(constraint, bound=higher[0] if constraint.floor else 1 - higher[0])]
    objectives = [of_class(part.quality, part.of) for part, _ in own]
    return [Constraint(o, h, floor=True) for o, h in zip(objectives, higher, strict=True)]


@dataclass(frozen=True)
class Tested:
    """What the samples that test say of one floor.

    value: the quality among them. proved: as asked. lower: what is sure of it, together with all others. least: trials
    with which nothing but hits would prove it, None where no number would. more: how many more validation samples would
    probably do, None where the value is not above the floor. of: of which class, or "" for samples of all. constraint:
    of which it is a part.
    """

    name: str
    floor: float
    value: float
    trials: int
    p: float
    proved: bool
    lower: float
    least: int | None
    more: int | None
    of: str
    constraint: str


@dataclass(frozen=True)
class Promise:
    """What is promised of a policy, and on what grounds.

    Parameters
    ----------
    confidence : float
        With which it holds on future samples.
    held : bool
        Whether the constraints are promised as asked.
    samples : int
        That tested.
    tried : int
        Policies that were tested.
    constraints : tuple of str
        As asked.
    nearest : tuple of str
        Constraints that are promised: those as asked or, where they cannot be, the nearest.
    tests : tuple of Tested
        Floor by floor.
    silent : tuple of str
        Classes without samples, of which a floor for every class says nothing.
    """

    confidence: float
    held: bool
    samples: int
    tried: int
    constraints: tuple[str, ...]
    nearest: tuple[str, ...]
    tests: tuple[Tested, ...]
    silent: tuple[str, ...] = ()

    @property
    def headline(self) -> str:
        """What is promised, in one sentence or two."""
        something = [text for text in self.nearest if as_constraint(text).limit(0.0) < 1]  # a floor of 0 is none
        share = (100 * Decimal(str(self.confidence))).normalize()  # never rounded up, to 100 % least of all
        sure = f"With {share:f} % confidence, {', '.join(something)} on future samples"
        sure = sure if something else "Nothing can be promised"
        on = f"by exact tests on {self.samples:,} samples that did not tune{_silence(self.silent)}"
        return f"{sure}: {on}." if self.held else f"Not promised: {', '.join(self.constraints)}. {sure}: {on}."

    def __str__(self) -> str:
        missed = sorted((t for t in self.tests if not t.proved), key=lambda t: t.lower - t.floor)
        said = [f"{_seen(t)}; {_remedy(t)}." for t in missed[:SHOWN]]
        if len(missed) > SHOWN:
            said.append(f"Floors that are not proved besides: {len(missed) - SHOWN}.")
        return " ".join([self.headline, *said])

    @property
    def limits(self) -> dict[str, tuple[float, float]]:
        """For `Validation`: what is promised, as errors on the samples that tested and their limits."""
        found = {}
        for asked, text in zip(self.constraints, self.nearest, strict=True):
            error = max(1 - test.value for test in self.tests if test.constraint == asked)
            constraint = as_constraint(text)
            found[text] = (error, 1 - constraint.bound if constraint.floor else constraint.bound)
        return found

    def as_json(self) -> dict[str, Any]:
        """For the policy."""
        return {
            "text": str(self),
            "confidence": self.confidence,
            "held": self.held,
            "samples": self.samples,
            "constraints": list(self.nearest),
            "tests": {t.name: [t.floor, t.value, t.trials, t.p] for t in self.tests},
        }


def _silence(classes: Sequence[str]) -> str:
    if not classes:
        return ""
    more = f" and {len(classes) - SHOWN} more classes" if len(classes) > SHOWN else ""
    return f", none of which is of {', '.join(classes[:SHOWN])}{more}, so nothing is said of that"


def _seen(test: Tested) -> str:
    return (
        f"{test.name} is {percent(test.value)} % in {test.trials} of them" if test.trials else f"{test.name} is unknown"
    )


def _remedy(test: Tested) -> str:
    if test.more is not None:
        return f"about {test.more:,} more validation samples{' of ' + test.of if test.of else ''} would do"
    if test.least is not None and test.trials < test.least:
        return f"it takes {test.least:,} of them at least"
    return f"that is not above {shortest(test.floor)}, so no number of samples would do"


class Proof(NamedTuple):
    """What the test has shown: the best policy that was proved, or else the likeliest.

    y, decisions: labels of the samples that test, and what this policy decides on them.
    """

    best: int
    held: bool
    tried: int
    confidence: float
    y: Ints
    decisions: Ints


def learn_then_test(
    needed: Sequence[Requirement],
    y: Ints,
    decided: Sequence[Ints],
    values: Sequence[float],
    tuning: Ints,
    testing: Ints,
    confidence: float,
) -> Proof:
    """Test policies, by their decisions on all samples, in the order in which the samples that tuned have hope.

    values: the objective of each; the lowest that is proved is the best.
    """

    def largest_p(i: int, chosen: Ints) -> float:
        return max(part.p_value(*part.count(y[chosen], decided[i][chosen])) for part in needed)

    order = sorted(range(len(decided)), key=lambda i: largest_p(i, tuning))
    proved: list[int] = []
    for i in order:
        if largest_p(i, testing) > 1 - confidence:
            break
        proved.append(i)
    best = min(proved, key=lambda i: values[i]) if proved else order[0]
    tried = min(len(proved) + 1, len(order))
    return Proof(best, bool(proved), tried, confidence, y[testing], decided[best][testing])


def promised(
    needed: Sequence[Requirement],
    constraints: Sequence[Constraint],
    proof: Proof,
    seen: NDArray[np.float64],
    class_names: Sequence[str],
) -> Promise:
    """What may be said of the policy that was chosen. seen: (K,) all validation samples of each class.

    Where the constraints are not promised, floors are lowered to what is sure of all of them at once (Bonferroni).
    """
    confidence, held, y, decisions = proof.confidence, proof.held, proof.y, proof.decisions
    risk, tests = (1 - confidence) / len(needed), []
    for part in needed:
        hits, trials = part.count(y, decisions)
        p, rate = part.p_value(hits, trials), hits / trials if trials else 0.0
        lower = float(beta.ppf(risk, hits, trials - hits + 1)) if hits else 0.0
        of = part.of if part.quality == "recall" else ""
        have = float(seen[part.classes].sum()) if part.quality == "recall" else float(seen.sum())
        tests.append(
            Tested(
                part.name, part.floor, part.of_rate(rate), trials, p, p <= 1 - confidence, part.of_rate(lower),
                _least(part.rate, confidence), _more(part.rate, rate, trials, have, confidence), of, part.constraint,
            )
        )  # fmt: skip
    nearest = tuple(map(str, constraints))
    if not held:
        floors = [
            min(min(t.lower, t.floor) for t, part in zip(tests, needed, strict=True) if part.constraint == str(c))
            for c in constraints
        ]
        nearest = tuple(_lowered(c, floor) for c, floor in zip(constraints, floors, strict=True))
    of_each = any(_of_every_class(constraint, class_names) for constraint in constraints)
    silent = tuple(name for name, n in zip(class_names, seen, strict=True) if of_each and n == 0)
    return Promise(confidence, held, len(y), proof.tried, tuple(map(str, constraints)), nearest, tuple(tests), silent)


def _of_every_class(constraint: Constraint, class_names: Sequence[str]) -> bool:
    name = constraint.objective.name
    return _WHOLE.get(name) == "recall" or (name.endswith(f"[{EVERY}]") and EVERY not in class_names)


def _lowered(constraint: Constraint, floor: float) -> str:
    """The constraint with another floor, rounded down to what is sure."""
    down = np.floor(1000 * floor) / 1000
    return str(replace(constraint, bound=float(down) if constraint.floor else float(round(1 - down, 3))))


def _least(floor: float, confidence: float) -> int | None:
    """How many trials prove the floor, if all of them are hits."""
    if floor == 1:
        return None
    return 1 if floor == 0 else int(np.ceil(np.log(1 - confidence) / np.log(floor) - 1e-9))


def _more(floor: float, rate: float, trials: int, have: float, confidence: float) -> int | None:
    """How many more validation samples would prove the floor, if the rate is what it seems to be."""
    if rate <= floor or not trials:
        return None

    def proves(n: int) -> bool:
        return bool(binom.sf(np.floor(n * rate + 1e-9) - 1, n, floor) <= 1 - confidence)

    n = trials
    while not proves(n):
        n *= 2
        if n > MOST:
            return None
    low = n // 2
    while n - low > 1 and n > trials:
        middle = (n + low) // 2
        low, n = (low, middle) if proves(middle) else (middle, n)
    return int(np.ceil(have * (n / trials - 1)))
