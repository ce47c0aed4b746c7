"""Validation scores as a file for `capri tune`, and the policy that tuning them gives; shared by all training loops."""

from __future__ import annotations

import io
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from capri._checks import InputError, InputWarning, check_labels, check_scores
from capri._files import write_atomically
from capri.classes import Classes
from capri.evaluation import evaluate
from capri.objectives import ObjectiveLike, as_objective
from capri.posthoc import LogitAdjuster

SCORES, POLICY = "validation_scores.npz", "policy.json"


@dataclass(frozen=True)
class Known:
    """What a training loop says of its classes."""

    classes: Classes | None
    class_counts: ArrayLike | Mapping[Any, float] | None

    @classmethod
    def of(cls, classes: Sequence[Any] | None, class_counts: ArrayLike | Mapping[Any, float] | None) -> Known:
        """As users hand it in."""
        return cls(None if classes is None else Classes.of(classes), class_counts)

    def among(self, n_columns: int) -> Classes:
        """The labels of the score columns: as given, or their numbers."""
        if self.classes is None:
            return Classes.of(range(n_columns))
        if len(self.classes) != n_columns:
            raise InputError(f"classes has {len(self.classes)} entries; the model gives {n_columns} scores.")
        return self.classes


@dataclass(frozen=True, eq=False)
class Validation:
    """Scores (n, K), class numbers (n,), and what is known of the classes."""

    scores: NDArray[Any]
    y: NDArray[np.int64]
    known: Known

    @classmethod
    def of(cls, scores: ArrayLike, y: ArrayLike, known: Known) -> Validation:
        """Checked: one row of finite scores and one class number per sample."""
        values = check_scores(scores)
        return cls(values, check_labels(y, values.shape[1], len(values), "labels"), known)

    @property
    def classes(self) -> Classes:
        """The labels of the columns."""
        return self.known.among(self.scores.shape[1])

    def figures(self, objectives: Sequence[ObjectiveLike], scores: ArrayLike | None = None) -> dict[str, float]:
        """Objectives of the decisions by these scores, or by others of the same samples."""
        chosen = np.asarray(self.scores if scores is None else scores).argmax(axis=1)
        labels = self.classes.labels
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of classes without validation samples, at every epoch
            return evaluate(
                labels[self.y],
                labels[chosen],
                labels,
                objectives,
                absent="ignore",
                class_counts=self.known.class_counts,
            )

    def tuned(self, objective: ObjectiveLike, **settings: Any) -> LogitAdjuster:
        """The adjuster that is best for an objective on these samples."""
        adjuster = LogitAdjuster(objective, absent="ignore", classes=self.classes.labels, **settings)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # as above; the policy's own notes keep them
            return adjuster.fit(self.scores, self.classes.labels[self.y], class_counts=self.known.class_counts)

    def save(self, path: str | os.PathLike[str]) -> None:
        """As an archive that `capri tune` reads."""
        arrays: dict[str, Any] = {"logits": self.scores, "y": self.y, "class_names": np.array(self.classes.names)}
        counts = self.classes.align(self.known.class_counts, "class_counts")
        if counts is not None:
            arrays["train_counts"] = np.asarray(counts)
        buffer = io.BytesIO()
        np.savez_compressed(buffer, allow_pickle=False, **arrays)
        write_atomically(Path(path), buffer.getvalue())


def check_names(*objectives: ObjectiveLike) -> None:
    """Refuse objectives that nobody knows, before training begins."""
    for objective in objectives:
        as_objective(objective)


def named(figures: Mapping[str, float], prefix: str) -> dict[str, float]:
    """Figures by names that loggers take: a colon would be a path to some."""
    return {f"{prefix}{name.replace(':', '_')}": value for name, value in figures.items()}


def after_tuning(validation: Validation, adjuster: LogitAdjuster) -> dict[str, float]:
    """The objective that was tuned for, by name, after tuning and on the same samples."""
    return validation.figures([adjuster.objective], adjuster.transform(validation.scores))


@contextmanager
def kept_going(to: str) -> Iterator[None]:
    """Training does not end because an epoch's scores cannot be tuned: a warning says why."""
    try:
        yield
    except InputError as error:
        warnings.warn(f"capri could not {to}: {error}", InputWarning, stacklevel=4)
