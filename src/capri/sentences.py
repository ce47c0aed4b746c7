"""Sentences: what figures say in words, once, for the terminal, `repr` and the report."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

#: Objectives with a parameter or without, by what people call them, and what they mean.
_WORDS = {
    "plain": ("overall error", "the share of all samples that are decided wrongly"),
    "balanced": ("balanced error", "the mean of the class errors"),
    "weighted": ("weighted error", "the mean of the class errors by importance"),
    "sdev": ("spread of class errors", "the standard deviation of the class errors"),
    "worst": ("worst class error", "the error of the worst class"),
    "worst_group": ("worst group error", "the mean error of the worst group of classes"),
    "cvar": ("CVaR", "the mean error of the worst {share} of the classes"),
    "quantile": ("quantile", "the error that the worst {share} of the classes exceed"),
    "mix": ("mix", "the overall error, weighted {share}, and the spread of class errors, weighted by the rest"),
    "macro_f1": ("1 − macro-F1", "one less the mean F1 of the classes"),
    "weighted_f1": ("1 − weighted F1", "one less the mean F1 of the classes by their shares"),
    "gmean": ("1 − geometric mean of recalls", "one less the geometric mean of the recalls"),
    "kappa": ("1 − kappa", "one less Cohen's kappa"),
    "mcc": ("1 − MCC", "one less Matthews' correlation"),
    "many": ("error of common classes", "the mean error of the classes with more than 100 training samples"),
    "medium": ("error of medium classes", "the mean error of the classes with 20 to 100 training samples"),
    "few": ("error of rare classes", "the mean error of the classes with fewer than 20 training samples"),
}
_NAMED = re.compile(r"(\w+)(?::([\d.eE+-]+))?")


def called(objective: str) -> str:
    """What people call an objective; its own name where they have no other.

    >>> called("cvar:0.2"), called("plain"), called("0.5*balanced+0.5*worst")
    ('CVaR 0.2', 'overall error', '0.5*balanced+0.5*worst')
    """
    if re.fullmatch(r"(precision|recall|f1)\[[^+]+\]", objective):
        return f"1 − {objective}"
    found = _NAMED.fullmatch(objective)
    if found is None or found[1] not in _WORDS:
        return objective
    return f"{_WORDS[found[1]][0]} {found[2] or ''}".strip()


def meaning(objective: str) -> str:
    """What an objective measures; empty where that takes more than a phrase.

    >>> meaning("cvar:0.2")
    'the mean error of the worst 20 % of the classes'
    """
    found = _NAMED.fullmatch(objective)
    if found is None or found[1] not in _WORDS:
        return ""
    return _WORDS[found[1]][1].format(share=f"{100 * float(found[2] or 0.2):g} %")


def percent(value: float | None) -> str:
    """0.1234 as 12.3; undefined as a dash."""
    return "–" if value is None or math.isnan(value) else f"{100 * value:.1f}"


def change(before: float | None, after: float | None) -> str:
    """The difference in points, with its sign."""
    if before is None or after is None:
        return "–"
    return f"{100 * (after - before):+.1f}"


LONG = 24  # characters of a name that a sentence has room for


def clipped(name: str, longest: int = LONG) -> str:
    """A name on one line, with an ellipsis where it goes on.

    >>> clipped("a very long name", longest=7)
    'a very…'
    """
    line = " ".join(name.split())
    return line if len(line) <= longest else line[: longest - 1].rstrip() + "…"


def listed(names: Sequence[str], most: int = 5) -> str:
    """The first of some names, and how many more there are.

    >>> listed(["a", "b", "c"], most=2)
    'a, b and 1 more'
    """
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(map(clipped, names[:most])) + more


@dataclass(frozen=True)
class Headline:
    """What tuning changed, in up to four phrases; as text, they are one sentence.

    Parameters
    ----------
    gain : str
        "CVaR 0.2 falls from 57.3 % to 30.1 %".
    evidence : str
        On which samples that was judged.
    sureness : str
        The interval of the improvement; empty where there is none.
    price : str
        What became of the overall error; empty where that is the objective.
    """

    gain: str
    evidence: str
    sureness: str = ""
    price: str = ""

    def __str__(self) -> str:
        judged = f"{self.gain}, {self.evidence}" + (f", {self.sureness}" if self.sureness else "")
        return f"{judged}; {self.price}." if self.price else f"{judged}."


def headline(
    objective: str,
    before: Mapping[str, float],
    after: Mapping[str, float],
    *,
    improvement: float | None = None,
    interval: tuple[float, float] | None = None,
    test: int | None = None,
    held: tuple[Mapping[str, float], Mapping[str, float]] | None = None,
    decided: float | None = None,
) -> Headline:
    """The sentence to begin with. Test samples speak first, then what was judged out of fold.

    Parameters
    ----------
    objective : str
        What was tuned for.
    before, after : mapping from objectives to numbers
        Figures on test samples where `test` says how many, else on those that tuned.
    improvement : float, optional
        The improvement of the objective out of fold.
    interval : (float, float), optional
        The 90 % interval of the improvement, out of fold or on the test samples.
    test : int, optional
        How many test samples the figures are of.
    held : (mapping, mapping), optional
        Figures before and after, out of fold.
    decided : float, optional
        The share of the samples that figures after are of, where the others are left undecided.

    Returns
    -------
    Headline

    Examples
    --------
    >>> figures = {"cvar:0.2": 0.986, "plain": 0.3}, {"cvar:0.2": 0.79, "plain": 0.312}
    >>> print(headline("cvar:0.2", *figures, improvement=0.176, interval=(0.121, 0.22)))
    CVaR 0.2 falls from 98.6 % to 81.0 %, out of fold, by 17.6 points (90 % interval 12.1 to 22.0); the overall error
    rises by 1.2 points on the samples that tuned.
    """
    was, now, price = before[objective], after[objective], _price(objective, before, after)
    among = "" if decided is None else f", {percent(decided)} % of them decided"
    if test is not None:
        sureness = "" if interval is None else _sureness(was - now, interval)
        return Headline(_moves(objective, was, now), f"on {test:,} test samples{among}", sureness, price)
    if improvement is None:
        sureness = "which may not hold on others"
        return Headline(_moves(objective, was, now), f"on the samples that tuned{among}", sureness, price)
    gain = _moves(objective, was, was - improvement)
    if held is not None:
        price = _price(objective, *held)
    elif price:
        price = f"{price} on the samples that tuned"
    return Headline(gain, "out of fold", _sureness(improvement, interval), price)


def _moves(objective: str, was: float, now: float) -> str:
    name = called(objective)
    name = name[:1].upper() + name[1:] if name != objective else name
    if percent(was) == percent(now):
        return f"{name} stays at {percent(was)} %"
    return f"{name} {'falls' if now < was else 'rises'} from {percent(was)} % to {percent(now)} %"


def _sureness(improvement: float, interval: tuple[float, float] | None) -> str:
    moved = percent(abs(improvement)) != percent(0.0)
    points = f"by {percent(abs(improvement))} points" if moved else ""
    if interval is None:
        return points
    low, high = interval if improvement >= 0 else (-interval[1], -interval[0])
    if not moved:
        return f"the 90 % interval of the improvement being {percent(interval[0])} to {percent(interval[1])} points"
    doubt = ", which includes none" if low <= 0 <= high else ""
    return f"{points} (90 % interval {percent(low)} to {percent(high)}{doubt})"


def _price(objective: str, before: Mapping[str, float], after: Mapping[str, float]) -> str:
    if objective == "plain" or "plain" not in before:
        return ""
    change = after["plain"] - before["plain"]
    if percent(abs(change)) == percent(0.0):
        return "the overall error stays as it was"
    return f"the overall error {'rises' if change > 0 else 'falls'} by {percent(abs(change))} points"
