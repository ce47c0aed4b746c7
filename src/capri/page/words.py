"""The words and rows of the page that need no script: the first screen, and the constraints."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from capri.page.content import Content, Kind, View
from capri.sentences import called, clipped, percent

FIRST = 4  # classes that gain or pay most, named on the first screen
NAMED = 3  # thin or absent classes that are named there
KINDS: dict[Kind, str] = {
    "test": "test samples",
    "out of fold": "out of fold",
    "in sample": "samples that tuned",
}
ISOLATE, END = "\u2068", "\u2069"  # around a name, which may run from right to left
OWN = "tuned"  # the rung of the policy itself
RUNGS = {
    "τ = 1": "logit adjustment, τ = 1: no tuning",
    "calibrated": "calibrated answer: no tuning on the objective",
    "LA, tuned": "logit adjustment, τ tuned",
    OWN: "this policy",
}


def signed(value: float | None) -> str:
    """0.012 as +1.2, in points."""
    return "–" if value is None else f"{100 * value:+.1f}".replace("-", "−")


def evidence(content: Content) -> str:
    """The headline without its first phrase, as a sentence of its own."""
    said = content.headline
    parts = [p for p in (said.evidence, said.sureness) if p]
    text = ", ".join(parts) + (f"; {said.price}" if said.price else "") + "."
    return (text[:1].upper() + text[1:]).replace("-", "−")


@dataclass(frozen=True)
class ObjectiveRow:
    """An objective before and after, as text."""

    name: str
    before: str
    after: str
    change: str
    tuned: bool


def objective_rows(content: Content) -> list[ObjectiveRow]:
    """The tuned objective first, as the headline has it, then the others."""
    view, after = content.views[0], dict(content.views[0].after)
    if (estimate := estimated(content)) is not None:
        after[content.objective] = estimate
    rows = [
        ObjectiveRow(
            called(name),
            percent(view.before[name]),
            percent(after[name]),
            signed(after[name] - view.before[name]),
            name == content.objective,
        )
        for name in sorted(view.before, key=lambda name: name != content.objective)
    ]
    if view.coverage is not None:
        share = view.coverage[0]
        rows.append(ObjectiveRow("share that is decided", percent(1.0), percent(share), signed(share - 1), False))
    return rows


def estimated(content: Content) -> float | None:
    """The objective after tuning as it was estimated out of fold; None where it is counted, by the policy as it is."""
    view, own = content.views[0], _own_gain(content)
    if view.kind == "test" or view.decided is not None or own is None or content.objective not in view.before:
        return None
    return view.before[content.objective] - own


def _own_gain(content: Content) -> float | None:
    return next((rung.gain for rung in content.ladder if rung.name == OWN), None)


@dataclass(frozen=True)
class Mover:
    """A class whose error changes, as text."""

    name: str
    before: str
    after: str


@dataclass(frozen=True)
class Side:
    """Those who gain, or those who pay: how many of how many, how many beyond chance, and the first of them."""

    title: str
    count: int
    of: int
    clear: int | None
    first: Sequence[Mover]


def sides(content: Content) -> list[Side]:
    """Who gains, and who pays; classes whose change is beyond chance come first."""
    view = content.views[0]
    rows = zip(view.first.values, view.second.values, strict=True)
    change = {k: b - a for k, (a, b) in enumerate(rows) if a is not None and b is not None}

    def side(title: str, sign: int) -> Side:
        ranked = sorted(
            (k for k in change if sign * change[k] > 0), key=lambda k: (not _is_clear(view, k), -sign * change[k])
        )
        first = [
            Mover(content.classes.names[k], percent(view.first.values[k]), percent(view.second.values[k]))
            for k in ranked[:FIRST]
        ]
        clear = sum(_is_clear(view, k) for k in ranked) if view.clear else None
        return Side(title, len(ranked), len(change), clear, first)

    return [side("Who gains", -1), side("Who pays", 1)]


def _is_clear(view: View, k: int) -> bool:
    return bool(view.clear) and view.clear[k]


def sureness(content: Content) -> list[str]:
    """What the figures rest on."""
    view, said = content.views[0], []
    meant = {
        "test": "Figures are of {n} test samples, which tuning has not seen.",
        "out of fold": "Each of {n} validation samples is judged by a tuning that has not seen it.",
        "in sample": "Class errors are of the {n} samples that tuned: after tuning they are on the bright side.",
    }
    said.append(meant[view.kind].format(n=f"{view.n_samples:,}"))
    if view.coverage is not None:
        whole, least = map(percent, view.coverage)
        said.append(f"{whole} % of them are decided, {least} % or more of each class: errors after are of these.")
        pairs = zip(content.classes.names, view.decided or (), strict=True)
        if never := [name for name, share in pairs if share == 0]:
            said.append(f"{_some(never)} of which nothing is decided: they are left out of figures after.")
    elif content.abstains:
        said.append("The policy leaves samples undecided; here every one is decided all the same.")
    samples = [n or 0 for n in view.samples]
    there = sorted(n for n in samples if n > 0)
    if there:
        few, many = there[0], there[-1]
        every = "every class" if len(there) == len(samples) else "each class that has any"
        said.append(f"{few:,g} to {many:,g} samples of {every}." if few < many else f"{few:,g} samples of {every}.")
    if (estimate := estimated(content)) is not None and percent(estimate) != percent(view.after[content.objective]):
        counted = "Counted" if view.kind == "out of fold" else "On the samples that tuned"
        said.append(
            f"The estimate weighs in the model's own opinion. {counted}, {called(content.objective)} comes to "
            f"{percent(view.after[content.objective])} %."
        )
    names = content.classes.names
    thin = [name for name, n in zip(names, samples, strict=True) if 0 < n < content.thin]
    absent = [name for name, n in zip(names, samples, strict=True) if n == 0]
    if thin:
        said.append(f"{_some(thin)} with fewer than {content.thin} samples: errors there are rough.")
    if absent:
        said.append(f"{_some(absent)} without any sample: nothing is known of the error there.")
    simpler, own = [rung for rung in content.ladder if rung.name != OWN], _own_gain(content)
    if simpler:
        best = max(simpler, key=lambda rung: rung.gain)
        beside = "" if own is None else f", this policy {percent(own)}"
        name = RUNGS.get(best.name, best.name).split(":")[0]
        whole = ", with every sample decided" if content.abstains else ""
        said.append(f"The best simpler way ({name}) gains {percent(best.gain)} points out of fold{beside}{whole}.")
    said += [content.facts["promise"]] if "promise" in content.facts else []
    if "abstention" in content.facts and view.kind != "in sample":
        said.append(f"On the samples that tuned, {content.facts['abstention']}")
    broken = [limit.text for limit in view.limits if limit.kept is False]
    if view.limits:
        state = f"{len(broken)} of {len(view.limits)} not kept here" if broken else "all kept here"
        said.append(f"Constraints: {state}.")
    return [text.replace("-", "−") if text.startswith("The best") else text for text in said]


def _some(names: Sequence[str]) -> str:
    count = f"{len(names):,} class" + ("es" if len(names) > 1 else "")
    short = [f"{ISOLATE}{clipped(name)}{END}" for name in names[:NAMED]]
    return f"{count} ({', '.join(short)}{', …' if len(names) > NAMED else ''})"


@dataclass(frozen=True)
class LimitRow:
    """A constraint on one set of samples, as text."""

    text: str
    samples: str
    value: str
    limit: str
    room: str
    kept: str


def limit_rows(content: Content) -> list[LimitRow]:
    """Each constraint on each set of samples."""
    return [
        LimitRow(
            limit.text,
            KINDS[view.kind],
            percent(limit.value),
            percent(limit.limit),
            "–" if limit.value is None or limit.limit is None else percent(abs(limit.limit - limit.value)),
            "–" if limit.kept is None else "yes" if limit.kept else "no",
        )
        for view in content.views
        for limit in view.limits
    ]
