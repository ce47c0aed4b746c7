"""The pair (Δ, l) and its arithmetic."""

import numpy as np

from capri.posthoc.adjustment import Adjustment, Direction


def same(first, second):
    return all(np.allclose(a, b) for a, b in zip(first, second, strict=True))


def test_neutral_parts_change_nothing(rng):
    scores, v = rng.normal(size=(4, 3)), rng.normal(size=3)
    assert (Adjustment.neutral(3).strategy().adjust(scores) == scores).all()
    np.testing.assert_array_equal(Adjustment.offsets(v).strategy().adjust(scores), scores - v)
    np.testing.assert_array_equal(Adjustment.multipliers(np.exp(v)).strategy().adjust(scores), scores * np.exp(v))


def test_a_line_leads_from_one_to_the_other(rng):
    first, second = (Adjustment(rng.uniform(0.5, 2, 3), rng.normal(size=3)) for _ in range(2))
    way = first.towards(second)
    assert same(first.along(way, 0.0), first)
    assert same(first.along(way, 1.0), second)
    assert same(first.along(Direction(np.ones(3), -np.ones(3)), 0.5), (first.delta + 0.5, first.l - 0.5))


def test_centred_offsets_decide_alike(rng):
    adjustment, scores = Adjustment(rng.uniform(0.5, 2, 3), rng.normal(size=3)), rng.normal(size=(50, 3))
    centred = adjustment.centred()
    assert abs(centred.l.mean()) < 1e-15
    np.testing.assert_array_equal(
        centred.strategy().adjust(scores).argmax(axis=1), adjustment.strategy().adjust(scores).argmax(axis=1)
    )
