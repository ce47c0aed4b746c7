"""One registry of attributes for tuning, search and the command line."""

from dataclasses import replace

import numpy as np
import pytest

from capri import InputError
from capri.evidence import Evidence, gather


class TestRegistry:
    known = Evidence(
        class_counts=[80, 20], errors=[0.0, 0.5], n_samples=[9, 9], weights=[1, 3], own={"size": [2.0, 1.0]}
    )

    def test_all_that_is_known_is_gathered_difficulty_last(self):
        table = gather(self.known)
        assert table.names == ("freq", "weights", "size", "diff")
        np.testing.assert_allclose(table.values, [[0.8, 0.5, 2.0, 0.05], [0.2, 1.5, 1.0, 0.5]])
        assert gather(Evidence()) is None

    def test_some_of_it_in_the_order_that_is_asked_for(self):
        assert gather(self.known, ["diff", "freq"]).names == ("diff", "freq")

    def test_a_given_column_goes_before_a_measured_one_and_is_checked_by_its_name(self):
        given = replace(self.known, own={"diff": [0.3, 0.4], "noise": [0.1, 0.2]})
        table = gather(given)
        assert table["diff"].tolist() == [0.3, 0.4]
        assert table["noise"].tolist() == [0.1, 0.2]
        with pytest.raises(InputError, match=r"noise\[1\] is 2.0; each entry must be at most 1"):
            gather(replace(self.known, own={"noise": [0.1, 2.0]}))

    def test_noise_is_estimated_when_it_is_named_and_samples_are_there(self, rng):
        y = np.repeat([0, 1], 300)
        p = np.clip(np.eye(2)[y] + rng.normal(0, 0.05, size=(600, 2)), 0.01, 0.99)
        p /= p.sum(axis=1, keepdims=True)
        noisy = np.where(rng.uniform(size=600) < 0.2, 1 - y, y)
        judged = replace(self.known, judged=(noisy, p))
        assert "noise" not in gather(judged).names
        np.testing.assert_allclose(gather(judged, ["noise"])["noise"], [0.2, 0.2], atol=0.05)

    @pytest.mark.parametrize(
        ("name", "remedy"),
        [
            ("freq", "class_counts"),
            ("weights", "weights"),
            ("norm", "class_attributes"),
            ("age", "class_attributes"),
        ],
    )
    def test_what_is_unknown_is_named_with_the_remedy(self, name, remedy):
        with pytest.raises(InputError, match=f"attribute '{name}' is unknown; give it as {remedy}=…"):
            gather(Evidence(), [name])

    def test_of_some_of_the_classes(self):
        part = self.known.among(np.array([False, True]))
        assert gather(part, ["weights", "size"]).values.tolist() == [[1.0, 1.0]]
