"""Sets of labels: how often they hold the true one, class by class."""

import numpy as np
import pytest
from scipy.stats import binom

from capri import InputError, LogitAdjuster, Policy, Strategy
from capri.posthoc import conformal_sets
from capri.posthoc.sets import grouped

SHARES = np.array([0.4, 0.3, 0.2, 0.06, 0.03, 0.01])
NAMES = np.array(list("abcdef"))
POLICY = Policy(Strategy.logit_adjustment(SHARES), "balanced", tuple(NAMES), attributes={"freq": SHARES.tolist()})


def draw(n, seed):
    rng = np.random.default_rng(seed)
    y = rng.choice(6, n, p=SHARES)
    return rng.normal(size=(n, 6)) + 2 * np.eye(6)[y] + np.log(SHARES), y


def test_every_class_is_covered_and_thin_ones_together():
    """Over many calibrations: the mean coverage of a class is 1 − α or more, and hardly more."""
    S, Y = draw(20_000, 10**6)
    covered, inside = [], []
    for seed in range(60):
        scores, y = draw(1000, seed)
        sets = conformal_sets(POLICY, scores, NAMES[y], alpha=0.1)
        found = sets.predict(S)
        hit = found[np.arange(len(Y)), Y]
        covered.append([hit[k == Y].mean() for k in range(5)])
        inside.append(found.sum(axis=1).mean())
        thin = sets.groups == sets.groups[5]
        covered[-1].append(np.average([hit[k == Y].mean() for k in np.flatnonzero(thin)], weights=SHARES[thin]))
    mean, error = np.mean(covered, axis=0), np.std(covered, axis=0) / np.sqrt(60)
    assert (mean + 3 * error >= 0.9).all()
    assert (mean < 0.96).all()
    assert 1 < np.mean(inside) < 3


def test_the_limit_is_the_exact_rank():
    rng = np.random.default_rng(0)
    scores, y = rng.normal(size=(39, 2)), np.repeat([0, 1], [19, 20])
    sets = conformal_sets(Policy(Strategy.of(2), "plain", (0, 1)), scores, y, alpha=0.1)
    gaps = np.sort((scores.max(axis=1) - scores[:, 0])[:19])
    assert sets.limits[0] == gaps[17]  # the 18th of 19: 20 · 0.9
    assert sets.predict(scores)[:19, 0].sum() == 18


def test_too_few_for_a_limit_are_in_every_set():
    sets = conformal_sets(Policy(Strategy.of(2), "plain", (0, 1)), [[1.0, 0], [0, 1.0]], [0, 1], alpha=0.1)
    assert np.isinf(sets.limits).all()
    assert sets.predict([[5.0, 0.0]]).all()
    assert "in every set" in str(sets)


@pytest.mark.parametrize(
    ("samples", "order", "groups"),
    [
        ([100, 100], [1, 2], [0, 1]),
        ([100, 3, 50, 12, 4], [5, 1, 4, 2, 3], [0, 2, 1, 2, 2]),
        ([9, 9, 9, 9], [4, 3, 2, 1], [1, 1, 0, 0]),
        ([9, 9, 9, 1], [4, 3, 2, 1], [0, 0, 0, 0]),
        ([100, 50, 1], [3, 1, 1.5], [0, 1, 1]),
        ([2, 1], [1, 2], [0, 0]),
    ],
)
def test_neighbours_stand_together_until_they_are_enough(samples, order, groups):
    found = grouped(np.array(samples), np.array(order, float), 0.1)
    same = np.array(groups)[:, None] == np.array(groups)
    np.testing.assert_array_equal(found[:, None] == found, same)


def test_labels_come_with_the_likeliest_first():
    scores, y = draw(500, 0)
    sets = conformal_sets(POLICY, scores, NAMES[y])
    lists, inside = sets.labels(scores[:50]), sets.predict(scores[:50])
    assert [len(labels) for labels in lists] == inside.sum(axis=1).tolist()
    assert [labels[0] for labels in lists] == POLICY.predict(scores[:50]).tolist()
    assert "share" in str(sets)


@pytest.mark.parametrize(
    ("change", "message"),
    [({"alpha": 0}, "alpha is 0"), ({"y": ["a"] * 3}, "3 labels for 4"), ({"y": ["z"] * 4}, "'z'"),
     ({"similar_by": [1, 2]}, "similar_by")],
)  # fmt: skip
def test_what_cannot_be_is_refused(change, message):
    with pytest.raises(InputError, match=message):
        conformal_sets(**{"policy": POLICY, "scores": np.zeros((4, 6)), "y": ["a"] * 4} | change)


def test_samples_that_tuned_are_told():
    scores, y = draw(500, 0)
    policy = LogitAdjuster("balanced", bootstrap=0).fit(scores, NAMES[y]).policy_
    with pytest.raises(InputError, match="these samples tuned the policy"):
        conformal_sets(policy, scores, NAMES[y])


def test_the_promise_of_one_class_by_itself():
    """Calibrated once, covered on 100,000 others: beyond 1 − α less what n samples can miss."""
    scores, y = draw(4000, 3)
    S, Y = draw(100_000, 4)
    sets = conformal_sets(POLICY, scores, NAMES[y], alpha=0.1)
    hit = sets.predict(S)[np.arange(len(Y)), Y]
    for k in range(4):
        n = (y == k).sum()
        assert hit[k == Y].mean() > binom.ppf(1e-4, n, 0.9) / n
