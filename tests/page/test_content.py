"""The content of a page, as JSON has it."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest


def test_numbers_are_rounded_and_what_is_undefined_is_none(content_of):
    content = content_of(4, absent=[2]).to_dict()
    view = content["views"][0]
    assert view["first"]["values"][2] is None
    assert view["samples"] == [50, 50, 0, 50]
    assert json.loads(json.dumps(content, allow_nan=False)) == content
    for low in view["first"]["low"]:
        assert low is None or low == float(f"{low:.5g}")


@pytest.mark.parametrize(
    ("value", "kept"), [(math.nan, None), (math.inf, None), (1.0, 1), (1 / 3, 0.33333), (1e300, 1e300)]
)
def test_each_number_has_a_place(value, kept, content_of):
    content = content_of(2)
    content = replace(content, classes=replace(content.classes, offsets=[value, 0.0]))
    assert content.to_dict()["classes"]["offsets"] == [kept, 0]


def test_the_number_of_classes(content_of):
    assert content_of(7).n_classes == 7
    assert np.shape(content_of(7).views[0].confusions.before) == (7, 7)
