"""What a search has judged, as a file: the same after reading, and refused where it is damaged."""

import numpy as np
import pytest
import torch
from tests.faults.test_files import mutate, mutate_inside

from capri import InputError
from capri.bilevel.strategy_map import StrategyTensors
from capri.train.judgements import Judgements

K, P = 6, 12


def judgements():
    rng = np.random.default_rng(0)
    parts = StrategyTensors(*(torch.from_numpy(rng.uniform(0.1, 0.4, (P, K))).float() for _ in range(4)))
    return Judgements("abc", tuple(f"τ = {i}" for i in range(P)), parts, rng.uniform(size=(P, K)))


def test_what_is_saved_is_read(tmp_path):
    given = judgements()
    given.save(tmp_path / "judged.npz")
    found = Judgements.load(tmp_path / "judged.npz", "abc")
    assert (found.who, found.names) == (given.who, given.names)
    np.testing.assert_array_equal(found.errors, given.errors)
    for mine, theirs in zip(found.strategies, given.strategies, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=0, atol=0)
    more = found.plus("generation 1", given.strategies, given.errors)
    assert more.names == (*given.names, *["generation 1"] * P)
    np.testing.assert_array_equal(more.errors[P:], given.errors)


@pytest.mark.parametrize("how", ["bytes", "inside"])
def test_a_damaged_file_is_refused_or_still_holds_judgements(tmp_path, how):
    path, rng, given = tmp_path / "judged.npz", np.random.default_rng(1), judgements()
    given.save(path)
    whole = path.read_bytes()
    refused = 0
    for _ in range(150):
        path.write_bytes(whole)
        path.write_bytes(mutate(whole, rng) if how == "bytes" else mutate_inside(path, rng))
        try:
            found = Judgements.load(path, "abc")
        except InputError:
            refused += 1
        else:
            assert found.errors.shape == (len(found.names), found.strategies.l.shape[1])
            assert np.isfinite(found.errors).all()
    assert refused > 75
