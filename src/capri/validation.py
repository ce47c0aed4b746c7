"""What tuning changed on the validation set: the figures, and what they say in sentences.

`summary` has the sentences by what they are about; the `repr` of a `Validation`, `capri tune` and reports show them.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from capri._checks import InputError
from capri._fields import (
    ERRORS,
    FIGURES,
    NUMBER,
    NUMBERS,
    TEXT,
    TRUTH,
    Rule,
    are_numbers,
    are_texts,
    check_fields,
    is_interval,
    is_number,
)
from capri.errors import THIN
from capri.sentences import called, clipped, headline, listed, percent

SHOWN = 3  # classes that gain or pay most
WIDTH = 80  # characters of a line
TUNED = "tuned"  # the rung of the ladder that was asked for


def _is_ladder(values: Any) -> bool:
    return isinstance(values, Mapping) and all(are_numbers(v) and len(v) == 3 for v in values.values())


def _are_limits(values: Any) -> bool:
    return isinstance(values, Mapping) and all(is_interval(v) for v in values.values())


_RULES: Mapping[str, Rule] = {
    "objective": TEXT,
    "before": FIGURES,
    "after": FIGURES,
    "errors_before": ERRORS,
    "errors_after": ERRORS,
    "samples": NUMBERS,
    "in_sample": NUMBER,
    "improvement": ("a number or None", lambda v: v is None or is_number(v)),
    "interval": ("two numbers or None", lambda v: v is None or is_interval(v)),
    "feasible": TRUTH,
    "ladder": ("a mapping to three numbers: mean, low and high", _is_ladder),
    "limits": ("a mapping to two numbers: value and limit", _are_limits),
    "class_names": ("a list of texts", are_texts),
}


@dataclass(frozen=True, repr=False)
class Validation:
    """What tuning changed on the validation set: all standard objectives and the errors per class, before and after.

    Its `repr` says it in about ten lines.

    Parameters
    ----------
    objective : str
        The tuned objective.
    before, after : mapping from objectives to numbers
        The standard objectives and the tuned one.
    errors_before, errors_after : sequence of float or None
        Errors per class; None for a class without samples.
    samples : sequence of float
        Samples per class, or their total weight.
    in_sample : float
        before − after of the tuned objective, on the samples that tuned: an optimistic figure.
    improvement : float or None
        What to expect on other samples: the improvement out of fold, where each sample is judged by a tuning that has
        not seen it. None where nothing was judged out of fold.
    interval : (float, float) or None
        90 % interval of that improvement.
    feasible : bool
        Whether all constraints were met, by what tuning goes by.
    ladder : mapping from rungs to (mean, low, high)
        The improvement out of fold of each way to decide, with its 90 % interval: "τ = 1", "calibrated", "LA, tuned"
        and "tuned".
    limits : mapping from constraints to (value, limit)
        What is limited, after tuning on these samples, and how high it may be. Of a floor both are 1 − the quality.
    class_names : sequence of str
        Names of the classes. A policy has them, and so leaves them out here when it is written.
    """

    objective: str
    before: Mapping[str, float]
    after: Mapping[str, float]
    errors_before: Sequence[float | None]
    errors_after: Sequence[float | None]
    samples: Sequence[float]
    in_sample: float
    improvement: float | None
    interval: tuple[float, float] | None
    feasible: bool
    ladder: Mapping[str, Sequence[float]] = field(default_factory=dict)
    limits: Mapping[str, Sequence[float]] = field(default_factory=dict)
    class_names: Sequence[str] = field(default=(), compare=False, metadata={"kept": False})

    def __post_init__(self) -> None:
        check_fields(self, _RULES, "validation.")

    def check_classes(self, n_classes: int) -> None:
        """Refuse figures per class that are not of this many classes.

        Parameters
        ----------
        n_classes : int
            K.
        """
        for name in ("errors_before", "errors_after", "samples"):
            if (n := len(getattr(self, name))) != n_classes:
                raise InputError(f"validation.{name} has {n} entries for {n_classes} classes; give one per class.")

    def __repr__(self) -> str:
        return text(self)


# -- in sentences -----------------------------------------------------------------------------------------------------


def text(found: Validation, width: int = WIDTH) -> str:
    """The summary as lines.

    Parameters
    ----------
    found : Validation
        What was found.
    width : int
        Characters of a line.

    Returns
    -------
    str
    """
    return in_lines(summary(found), width)


def in_lines(said: Mapping[str, str], width: int = WIDTH) -> str:
    """The headline, and below it what each further sentence is about.

    Parameters
    ----------
    said : mapping from topics to sentences
        As `summary` gives it, "headline" among them.
    width : int
        Characters of a line.

    Returns
    -------
    str
    """
    margin = 2 + max(len(about) for about in said if about != "headline")

    def wrapped(sentence: str, label: str = "", indent: str = "") -> str:
        whole = sentence.replace(" %", "\N{NO-BREAK SPACE}%")  # a figure stays beside its sign
        whole = whole.replace(" → ", "\N{NO-BREAK SPACE}→\N{NO-BREAK SPACE}")
        lines = textwrap.fill(whole, width, initial_indent=label, subsequent_indent=indent, break_on_hyphens=False)
        return lines.replace("\N{NO-BREAK SPACE}", " ")

    rest = {about: sentence for about, sentence in said.items() if about != "headline"}
    below = (wrapped(sentence, about.ljust(margin), " " * margin) for about, sentence in rest.items())
    return "\n".join([wrapped(said["headline"]), *below])


def summary(found: Validation) -> dict[str, str]:
    """What tuning changed, for whom, who pays and how sure that is: sentences by what they are about.

    Parameters
    ----------
    found : Validation
        What was found.

    Returns
    -------
    dict
        "headline", "gain", "pay", "samples", "simpler", "limits" and "in sample", where there is something to say.
    """
    gainers, payers = movers(found)
    judged = sum(e is not None for e in found.errors_before)
    said = {
        "headline": _headline(found),
        "gain": _most(gainers, judged),
        "pay": _most(payers, judged),
        "samples": _samples(found),
        "simpler": _simpler(found),
        "limits": _limits(found),
        "in sample": _in_sample(found),
    }
    return {about: sentence for about, sentence in said.items() if sentence}


def _headline(found: Validation) -> str:
    if not {found.objective} <= set(found.before) & set(found.after):
        return f"Tuned for {found.objective}, of which the figures are not known."
    evidence = {"improvement": found.improvement, "interval": found.interval}
    return str(headline(found.objective, found.before, found.after, **evidence))  # type: ignore[arg-type]


class Mover(NamedTuple):
    """A class whose error moves."""

    name: str
    before: float
    after: float


def movers(found: Validation) -> tuple[list[Mover], list[Mover]]:
    """The classes that gain, and those that pay, each the most affected first.

    Parameters
    ----------
    found : Validation
        What was found.

    Returns
    -------
    (list, list)
        Classes whose errors are lower, and higher, after tuning than before.
    """
    rows = zip(_names(found), found.errors_before, found.errors_after, strict=True)
    known = [Mover(name, b, a) for name, b, a in rows if b is not None and a is not None]
    ranked = sorted(known, key=lambda m: m.after - m.before)
    return [m for m in ranked if m.after < m.before], [m for m in reversed(ranked) if m.after > m.before]


def _names(found: Validation) -> Sequence[str]:
    return found.class_names or tuple(map(str, range(len(found.samples))))


def _most(classes: Sequence[Mover], judged: int) -> str:
    if not classes:
        return "no class"
    most = ", ".join(f"{clipped(m.name)}: {100 * m.before:.0f} → {100 * m.after:.0f} %" for m in classes[:SHOWN])
    return f"{len(classes)} of {judged} classes, {'most of all ' if len(classes) > SHOWN else ''}{most}"


def _samples(found: Validation) -> str:
    """Where the data are thin."""
    counted = list(zip(_names(found), found.samples, strict=True))
    absent = [name for name, n in counted if n == 0]
    thin = [name for name, n in counted if 0 < n < THIN]
    parts = [f"none of {listed(absent, SHOWN)}"] if absent else []
    parts += [f"fewer than {THIN} of {listed(thin, SHOWN)}, whose errors are rough"] if thin else []
    return "; ".join(parts) or f"{min(found.samples):g} or more of every class"


def _simpler(found: Validation) -> str:
    """The best of the simpler ways."""
    others = {rung: gain for rung, gain in found.ladder.items() if rung != TUNED}
    if not others:
        return ""
    best = max(others, key=lambda rung: others[rung][0])
    mean, low, high = map(percent, others[best])
    return f"“{best}” gains most of the simpler ways: {mean} points out of fold (90 % interval {low} to {high})"


def _limits(found: Validation) -> str:
    """How close each constraint is."""
    parts = []
    for constraint, (value, limit) in found.limits.items():
        room = percent(abs(limit - value))
        kept = value <= limit or room == percent(0.0)
        parts.append(f"{constraint} is {'kept' if kept else 'broken'} by {room} points")
    return "; ".join(parts + ([] if found.feasible else ["no adjustment was found that keeps all"]))


def _in_sample(found: Validation) -> str:
    names = dict.fromkeys([found.objective, "plain", "balanced"])
    known = [name for name in names if name in found.before and name in found.after]
    figures = (f"{called(n)} {percent(found.before[n])} → {percent(found.after[n])} %" for n in known)
    return ", ".join(figures)
