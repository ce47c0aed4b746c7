"""L-BFGS on plain arrays: where it ends, how dear it is, how it goes on."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import rosen, rosen_der

from capri.bilevel import descent


def rosenbrock(z):
    return float(rosen(z)), lambda: rosen_der(z)


def run(evaluate, start, steps, reach=0.5, tolerance=1e-8):
    at = descent.begin(evaluate, np.asarray(start, dtype=np.float64))
    for _ in range(steps):
        at = at if at.done else descent.step(evaluate, at, reach, tolerance)
    return at


def test_it_follows_a_curved_valley():
    at = run(rosenbrock, [-1.2, 1.0, 0.5], 200)
    assert at.done
    np.testing.assert_allclose(at.path[-1], 1, atol=1e-6)
    assert (np.diff(at.values) < 0).all()
    assert np.linalg.norm(np.diff(at.path, axis=0), axis=1).max() <= 0.5 + 1e-12


def test_gradients_are_asked_for_where_the_value_fell():
    asked = {"values": 0, "gradients": 0}

    def counted(z):
        asked["values"] += 1

        def gradient():
            asked["gradients"] += 1
            return rosen_der(z)

        return float(rosen(z)), gradient

    at = run(counted, [-1.2, 1.0], 30, tolerance=0)
    assert asked["gradients"] == len(at.path) < asked["values"]


def test_it_goes_on_from_plain_arrays():
    whole, part = run(rosenbrock, [-1.2, 1.0], 12), run(rosenbrock, [-1.2, 1.0], 5)
    kept = {
        name: np.array(array.tolist(), dtype=array.dtype).reshape(array.shape) for name, array in part.arrays().items()
    }
    resumed = descent.Descent.of(kept)
    for _ in range(7):
        resumed = descent.step(rosenbrock, resumed, 0.5, 1e-8)
    for name, array in whole.arrays().items():
        np.testing.assert_array_equal(resumed.arrays()[name], array)


@pytest.mark.parametrize("beyond", [(np.nan, 1.0), (np.inf, 1.0), (-1e3, np.nan), (-1e3, 1e30)])
def test_it_stays_where_training_is_sound(beyond):
    """Beyond 0.7 a training diverges, or its derivative explodes."""

    def evaluate(z):
        if z[0] > 0.7:
            return beyond[0], lambda: np.full(1, beyond[1])
        return float((z[0] - 0.6) ** 2), lambda: 2 * (z - 0.6)

    at = run(evaluate, [0.0], 30, reach=3.0)
    assert at.path[-1] == pytest.approx(0.6, abs=1e-6)


def test_a_start_that_diverges_is_named():
    with pytest.raises(FloatingPointError, match="the training that a search starts from diverges"):
        descent.begin(lambda z: (1.0, lambda: np.full(2, np.nan)), np.zeros(2))


def test_it_is_done_where_no_step_helps():
    at = run(lambda z: (float(np.abs(z).sum()), lambda: -np.sign(z)), [1.0, 1.0], 10)  # a gradient that lies
    assert at.done
    assert len(at.path) == 1
