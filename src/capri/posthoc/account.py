"""The account of a tuning: what a report says of a policy, by the samples that are at hand.

Test samples, which nothing has seen, speak first; then samples that were judged out of fold, and those that tuned.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from capri._checks import InputError
from capri._provenance import data_digest
from capri.attributes import frequency
from capri.constraints import as_constraint
from capri.errors import THIN
from capri.objectives import FEW_SHOT, MANY_SHOT, as_objective
from capri.page.content import ClassTable, Content, Kind, Rung, View
from capri.policy import Policy, to_logits
from capri.posthoc.adjustment import Vector
from capri.posthoc.heldout import TUNED
from capri.posthoc.line_profile import LineProfile, profile_of
from capri.posthoc.problem import Problem
from capri.posthoc.tradeoff import Frontier
from capri.posthoc.views import (
    Decided,
    by_policy,
    errors_of,
    is_known,
    objective_of,
    resampled,
    values_of,
    view_of,
    view_of_validation,
)
from capri.sentences import Headline, headline

BANDS, USUAL = 700, (-0.5, 2.5)  # of the line: how finely it is drawn, and how far where no mark lies beyond


def pose(policy: Policy, scores: ArrayLike, y: ArrayLike, **known: Any) -> Problem:
    """The question that a policy answers, on these samples.

    Parameters
    ----------
    policy : Policy
        Its objective and constraints are asked for; an objective that is not known here gives way to the mean error.
    scores : array-like of shape (n_samples, K)
        As the policy takes them, columns in the order of its classes.
    y : array-like of shape (n_samples,)
        Classes by position.
    **known
        `shares`, `absent`, `weights`, `groups`, `class_counts` and `sample_weight`, as `Problem` takes them.

    Returns
    -------
    Problem
    """
    logits, context = to_logits(scores, policy.scores, policy.floor), {"class_names": policy.class_names, **known}
    objective = policy.objective if _can_be_read(as_objective, policy.objective) else "balanced"
    constraints = [text for text in policy.constraints if _can_be_read(as_constraint, text)]
    return Problem(logits, y, objective, constraints=constraints, **context)


def shares_asked(policy: Policy) -> list[float] | None:
    """The class shares of the world that a policy was tuned for, (K,); None for those of whatever samples there are.

    Policies of 0.1 keep those of their samples, too, where a class that has none is no class of the world.
    """
    shares = policy.data.get("target_shares")
    return shares if shares and min(shares) > 0 else None


def check_unseen(
    policy: Policy, scores: ArrayLike, y: ArrayLike, name: str = "X", curve: Frontier | None = None
) -> None:
    """Refuse the samples that tuned a policy, or a frontier beside it, where test samples are wanted.

    Parameters
    ----------
    policy : Policy
        It holds their digest.
    scores, y : array-like
        The samples, columns and labels in the order of the policy's classes.
    name : str
        What messages call them.
    curve : Frontier, optional
        Its policies hold their digest, too.
    """
    beside = {} if curve is None else {at.data.get("digest"): at for at in curve.policies}
    for what, rule in (("policy", policy), *(("frontier", at) for at in beside.values())):
        if tuned_on(rule, scores, y):
            raise InputError(f"{name}: these samples tuned the {what}, so they are no test of it; give others.")


def tuned_on(policy: Policy, scores: ArrayLike, y: ArrayLike) -> bool:
    """Whether these are the samples that tuned a policy, or that tuned and tested it."""
    promise = policy.data.get("promise")
    tested = promise.get("digest") if isinstance(promise, Mapping) else None
    return data_digest(scores, y) in (policy.data.get("digest"), tested or "")


def _can_be_read(read: Callable[[str], object], text: str) -> bool:
    try:
        read(text)
    except InputError:
        return False
    return True


def account(
    policy: Policy,
    decided: Sequence[Decided] = (),
    *,
    class_counts: ArrayLike | None = None,
    curve: Frontier | None = None,
    facts: Mapping[str, str] | None = None,
) -> Content:
    """Everything that a report says of a policy.

    Parameters
    ----------
    policy : Policy
        Its own validation figures stand in where no samples that tuned are at hand.
    decided : sequence of Decided
        Samples, of each kind once.
    class_counts : array-like of shape (K,), optional
        Training samples.
    curve : Frontier, optional
        What other objectives would have cost. Its points are judged on the most trustworthy of the samples.
    facts : mapping, optional
        Where the samples come from.

    Returns
    -------
    Content
    """
    views = {d.kind: view_of(d, policy.objective) for d in decided}
    found = policy.validation
    if found is not None and "in sample" not in views:
        views["in sample"] = view_of_validation(found)
    if not views:
        raise InputError("the policy holds no validation figures; give samples with labels to judge it on.")
    order: tuple[Kind, ...] = ("test", "out of fold", "in sample")
    ranked = [views[kind] for kind in order if kind in views]
    return Content(
        objective=policy.objective,
        headline=_headline(policy, ranked[0], next((d for d in decided if d.kind == ranked[0].kind), None)),
        views=ranked,
        classes=_classes(policy, None if class_counts is None else np.asarray(class_counts, dtype=np.float64)),
        method=policy.method,
        reason=policy.reason,
        ladder=_ladder(policy),
        line=_line(policy, next((d.problem for d in decided if d.kind == "in sample"), None), class_counts),
        frontier=None if curve is None else _frontier(policy, curve, decided),
        facts={**(facts or {}), **_facts(policy)},
        thin=THIN,
        abstains=policy.thresholds is not None,
        notes=_notes(policy, ranked) + _remarks(policy, decided, curve),
    )


def _headline(policy: Policy, view: View, decided: Decided | None) -> Headline:
    found, share = policy.validation, None if view.coverage is None else view.coverage[0]
    name = policy.objective if policy.objective in view.before else "balanced"
    if view.kind == "test" and decided is not None:
        interval = resampled(decided, objective_of(decided.problem, name))
        return headline(name, view.before, view.after, test=view.n_samples, interval=interval, decided=share)
    if found is None or share is not None:
        return headline(name, view.before, view.after, decided=share)
    held = (view.before, view.after) if view.kind == "out of fold" else None
    evidence = {"improvement": found.improvement, "interval": found.interval}
    said = headline(found.objective, found.before, found.after, held=held, **evidence)  # type: ignore[arg-type]
    return said if policy.thresholds is None else replace(said, evidence=f"{said.evidence}, with every sample decided")


# -- the policy -------------------------------------------------------------------------------------------------------


def _classes(policy: Policy, counts: Vector | None) -> ClassTable:
    freq = policy.attributes.get("freq")
    known = counts if counts is not None else None if freq is None else np.asarray(freq)
    groups, group = _groups(known, counted=counts is not None)
    own = own_parts(policy) if len(policy.weights.get("l", ())) else None
    return ClassTable(
        names=list(policy.class_names),
        training=None if counts is None else counts.tolist(),
        frequency=None if known is None or known.sum() == 0 else (frequency(known)).tolist(),
        groups=groups,
        group=group,
        offsets=policy.strategy.l.tolist(),
        multipliers=policy.strategy.delta.tolist(),
        residual=None if own is None else own.tolist(),
    )


def own_parts(policy: Policy) -> Vector | None:
    """What of each offset the map of attributes does not say, (K,); None where pooling left no such part.

    NaN for classes without samples, which only have the map.
    """
    if "residual" not in policy.weights:
        return None
    l = policy.strategy.l
    own = np.full(len(l), np.nan)
    here = np.ones(len(l), bool) if policy.validation is None else np.asarray(policy.validation.samples) > 0
    own[here] = policy.weights["residual"]
    return own


def _groups(amounts: Vector | None, *, counted: bool) -> tuple[list[str], list[int]]:
    """Many, medium and few training samples, where these tell classes apart; else thirds of the classes."""
    if amounts is None or len(amounts) < 3:
        return [], []
    if counted:
        shots = np.where(amounts > MANY_SHOT, 0, np.where(amounts >= FEW_SHOT, 1, 2))
        if len(np.unique(shots)) > 1:
            names = [f"many (over {MANY_SHOT})", f"medium ({FEW_SHOT} to {MANY_SHOT})", f"few (under {FEW_SHOT})"]
            return names, shots.tolist()
    if amounts.min() == amounts.max():
        return [], []
    third = np.empty(len(amounts), np.int64)
    third[np.argsort(-amounts, kind="stable")] = np.arange(len(amounts)) * 3 // len(amounts)
    return ["common third", "middle third", "rare third"], third.tolist()


def _ladder(policy: Policy) -> list[Rung]:
    found, path = policy.validation, policy.data.get("path")
    if found is not None and found.ladder:
        return [Rung(name, mean, (low, high)) for name, (mean, low, high) in found.ladder.items()]
    if found is None or not isinstance(path, Mapping):  # policies of 0.1 keep the means
        return []
    return [Rung(str(name), float(gain), found.interval if name == TUNED else None) for name, gain in path.items()]


def _line(policy: Policy, problem: Problem | None, class_counts: ArrayLike | None) -> dict[str, Any] | None:
    """The objective along the line of logit adjustment, as far as marks and habit reach."""
    if problem is None or class_counts is None or problem.objective_spec.name != policy.objective:
        return None
    counts = np.asarray(class_counts, dtype=np.float64)
    if counts.min() == 0 or counts.min() == counts.max():
        return None

    def followed(within: tuple[float, float]) -> LineProfile:
        return profile_of(problem, counts, chosen=policy.strategy, within=within, bands=BANDS)

    found = followed(USUAL)
    taus = [mark.tau for mark in found.marks.values()]
    if min(taus) < USUAL[0] or max(taus) > USUAL[1]:
        found = followed((min(USUAL[0], 1.1 * min(taus)), max(USUAL[1], 1.1 * max(taus))))
    return found.to_dict()


def _frontier(policy: Policy, curve: Frontier, decided: Sequence[Decided]) -> dict[str, Any] | None:
    """The points of a curve with their figures here: on test samples, or else on those that tuned.

    Out of fold there are none, where each fold has policies of its own.
    """
    judging = {d.kind: d for d in decided}
    there = judging.get("test", judging.get("in sample"))
    if there is None or not all(is_known(there.problem, name) for name in (curve.of, curve.against)):
        return None
    pair = [objective_of(there.problem, name) for name in (curve.of, curve.against)]

    def placed(decisions: NDArray[np.int64]) -> dict[str, Any]:
        found = values_of(there, decisions, pair)
        return {"value": found[curve.of], "price": found[curve.against]}

    points = []
    for at in curve.policies:
        if at.classes != policy.classes:
            raise InputError("the frontier is of other classes than the policy; make both from the same samples.")
        after = by_policy(there.kind, at, there.problem).after
        errors = [None if np.isnan(e) else round(float(e), 3) for e in errors_of(there, after)]
        points.append({**placed(after), "errors": errors})
    return {
        "of": curve.of,
        "against": curve.against,
        "kind": there.kind,
        "points": points,
        "unadjusted": placed(there.before),
        "policy": placed(there.after),
        "tuned": [{"value": point.value, "price": point.price} for point in curve.points],
        "held": [{"value": point.held_value, "price": point.held_price} for point in curve.points],
        "held_out": curve.held_out,
    }


def _facts(policy: Policy) -> dict[str, str]:
    """What to say of a policy's origin."""
    data, found = policy.data, policy.validation
    said = {
        "objective": policy.objective,
        "method": f"{policy.method}: {policy.reason}" if policy.reason else policy.method,
        "scores": "probabilities" if policy.scores == "proba" else "logits",
        "attributes": ", ".join(policy.attributes),
        "constraints": "; ".join(policy.constraints),
        "promise": _said(policy, "promise"),
        "abstention": _said(policy, "abstention"),
        "samples that tuned": f"{data['n_samples']:,}" if isinstance(data.get("n_samples"), int) else "",
        "digest of these samples": str(data.get("digest", "")),
        "digest of the policy": policy.digest,
        "seed": "" if policy.seed is None else str(policy.seed),
        "versions": ", ".join(f"{name} {version}" for name, version in policy.versions.items()),
    }
    if found is not None and not found.feasible:
        said["constraints"] += " (no adjustment was found that meets all of them)"
    return {name: text for name, text in said.items() if text}


def _said(policy: Policy, about: str) -> str:
    """What is promised, or left undecided, as the policy says it."""
    found = policy.data.get(about)
    return str(found.get("text", "")) if isinstance(found, Mapping) else ""


def _notes(policy: Policy, views: Sequence[View]) -> list[str]:
    unknown = [] if policy.objective in views[0].before else [f"the objective {policy.objective}"]
    unknown += [f"the constraint {text}" for text in policy.constraints if not _can_be_read(as_constraint, text)]
    notes = [f"Nobody knows {', '.join(unknown)} by name here; it is left out."] if unknown else []
    if all(view.kind == "in sample" for view in views):
        notes.append("Class errors are of the samples that tuned, so those after tuning are on the bright side.")
    return notes


def _remarks(policy: Policy, decided: Sequence[Decided], curve: Frontier | None) -> list[str]:
    """What figures are in, and of, where a reader would not guess it."""
    remarks = []
    if any(d.problem.shares is not None for d in decided):
        remarks.append(
            "The overall error, F1 and whatever else depends on how frequent classes are, are in the class shares of "
            "the world that tuning went by, not in those of the samples."
        )
    if curve is not None and any(at.data.get("digest") != policy.data.get("digest") for at in curve.policies):
        remarks.append("By their digests, the frontier was made of other samples than the policy.")
    if policy.thresholds is not None:
        remarks.append(
            "The policy leaves samples undecided: on test samples and on those that tuned, figures after it are of "
            "what is decided. Out of fold, along the line and on a frontier every sample is decided."
        )
    return remarks
