"""`capri compare`: methods against each other on samples that none of them was tuned on."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from capri._checks import InputError, InputWarning, Ints
from capri.attributes import UNKNOWN_FREQUENCIES, counts_in
from capri.errors import Absent
from capri.evaluation import evaluate
from capri.policy import ScoreKind

UNADJUSTED = "unadjusted"
#: Rows of the table: settings of `LogitAdjuster`.
ROWS: Mapping[str, Mapping[str, Any]] = {
    UNADJUSTED: {},
    "la": {"method": "la"},
    "cdt": {"method": "cdt"},
    "vs": {"method": "vs"},
    "plain": {"method": "plain"},
    "cap": {"method": "cap", "pooling": None},
    "cap-pooled": {"method": "cap", "pooling": "auto"},
}
DEFAULT_ROWS = (UNADJUSTED, "la", "plain", "cap", "cap-pooled")
NEED_FREQUENCY = ("la", "cdt", "vs")


@dataclass(frozen=True, eq=False)
class Setting:
    """What all methods share: the samples and what is known of the classes."""

    scores: NDArray[Any]
    labels: Ints
    class_names: tuple[str, ...]
    class_counts: NDArray[np.float64] | None = None
    weights: ArrayLike | None = None
    groups: ArrayLike | None = None
    kind: ScoreKind = "logits"
    absent: Absent = "error"

    @property
    def context(self) -> dict[str, Any]:
        """What objectives may ask for."""
        return {
            "absent": self.absent,
            "class_names": self.class_names,
            "weights": self.weights,
            "groups": self.groups,
            "class_counts": self.class_counts,
        }

    def value(self, rows: NDArray[np.int64], predictions: Ints, objectives: Sequence[str]) -> dict[str, float]:
        """Objectives of predictions for some of the samples."""
        return evaluate(self.labels[rows], predictions, len(self.class_names), objectives, **self.context)


@dataclass(frozen=True, eq=False)
class Figures:
    """One method for one objective: a number per split."""

    validation: list[float] = field(default_factory=list)
    test: list[float] = field(default_factory=list)
    balanced: list[float] = field(default_factory=list)


Comparison = dict[str, dict[str, Figures]]


def check_rows(names: Sequence[str]) -> None:
    """Refuse methods that do not exist."""
    for name in names:
        if name not in ROWS:
            near = get_close_matches(name, ROWS, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(ROWS)}."
            raise InputError(f"--methods holds {name!r}, which is not a method; {hint}")


def check_holdout(share: float) -> None:
    """Refuse a share that leaves nothing on one side."""
    if not 0 < share < 1:
        raise InputError(f"--holdout is {share:g}; it must lie between 0 and 1, such as 0.5.")


def possible_rows(setting: Setting, rows: Sequence[str]) -> list[str]:
    """Without the methods that need training frequencies, where these are unknown, with a warning that names them."""
    known = setting.class_counts is not None or counts_in(setting.labels, len(setting.class_names)) is not None
    if known:
        return list(rows)
    dropped = [row for row in rows if row in NEED_FREQUENCY]
    if dropped:
        said = InputWarning(f"{', '.join(dropped)} left out: {UNKNOWN_FREQUENCIES}.", argument="class_counts")
        warnings.warn(said, stacklevel=2)
    return [row for row in rows if row not in dropped]


def compare(
    setting: Setting,
    objectives: Sequence[str],
    rows: Sequence[str] = DEFAULT_ROWS,
    *,
    splits: int = 5,
    holdout: float = 0.5,
    seed: int = 0,
    on_step: Callable[[], None] = lambda: None,
) -> Comparison:
    """Every method for every objective on every split: tuned on one part, judged on the other."""
    result: Comparison = {o: {r: Figures() for r in rows} for o in objectives}
    for split in range(splits):
        tuning, test = stratified_split(setting, holdout, seed + split)
        for objective in objectives:
            for row in rows:
                predict = _predictor(setting, tuning, objective, row, seed + split)
                seen, unseen = predict(setting.scores[tuning]), predict(setting.scores[test])
                figures = result[objective][row]
                figures.validation.append(setting.value(tuning, seen, [objective])[objective])
                held_out = setting.value(test, unseen, [objective, "balanced"])
                figures.test.append(held_out[objective])
                figures.balanced.append(held_out["balanced"])
                on_step()
    return result


def _predictor(
    setting: Setting, tuning: NDArray[np.int64], objective: str, row: str, seed: int
) -> Callable[[NDArray[Any]], Ints]:
    if row == UNADJUSTED:
        return lambda scores: scores.argmax(axis=1)
    from capri.posthoc import LogitAdjuster

    adjuster = LogitAdjuster(
        objective,
        **ROWS[row],
        scores=setting.kind,
        classes=setting.class_names,
        weights=setting.weights,
        groups=setting.groups,
        absent=setting.absent,
        bootstrap=0,  # no interval: the held-out part is the judge
        random_state=seed,
    )
    labels = np.asarray(setting.class_names)[setting.labels[tuning]]
    adjuster.fit(setting.scores[tuning], labels, setting.class_counts)
    return lambda scores: adjuster.transform(scores).argmax(axis=1)


def stratified_split(setting: Setting, holdout: float, seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows to tune on and rows to test on; every class that can be is in both."""
    rng = np.random.default_rng(seed)
    parts = [_divide(rng.permutation(members), holdout) for members in _members(setting)]
    return np.sort(np.concatenate([p[0] for p in parts])), np.sort(np.concatenate([p[1] for p in parts]))


def _divide(members: NDArray[np.int64], holdout: float) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    n_test = int(np.clip(round(len(members) * holdout), 1, len(members) - 1)) if len(members) > 1 else 0
    return members[n_test:], members[:n_test]


def _members(setting: Setting) -> Iterator[NDArray[np.int64]]:
    for k, name in enumerate(setting.class_names):
        members = np.flatnonzero(setting.labels == k)
        if len(members) < 2 and setting.absent == "error":
            raise InputError(
                f"class {name!r} has {len(members)} samples; comparing needs 2 or more, one to tune on and one to test "
                'on. Add samples, or pass absent="ignore" to leave such classes out of the objective.'
            )
        yield members
