"""Results are computed once, and named by their settings."""

import json
from concurrent.futures import ProcessPoolExecutor

import pytest

from capri._checks import InputError
from capri_paper.runner import run
from capri_paper.store import Store, Unit


class Counter:
    """Work that says how often it was done, in a file, so that processes can share it."""

    def __init__(self, path):
        self.path = path

    def __call__(self, unit, store):
        with self.path.open("a") as stream:
            stream.write("x")
        if unit.settings.get("bad"):
            raise InputError("this cannot be done.")
        if unit.settings.get("stop"):
            raise KeyboardInterrupt
        return {"twice": 2 * unit.settings["n"]}

    @property
    def times(self):
        return len(self.path.read_text()) if self.path.exists() else 0


@pytest.fixture
def counter(tmp_path):
    return Counter(tmp_path / "count")


@pytest.fixture
def store(tmp_path, counter):
    return Store(tmp_path / "results", tmp_path / "data", {"double": counter})


def units(*numbers):
    return [Unit("double", {"n": n}, f"n{n}") for n in numbers]


def test_the_address_is_of_the_content():
    a = Unit("double", {"n": 1, "m": "é"}, "one")
    assert a == Unit("double", {"m": "é", "n": 1}, "other label")
    assert len({a, Unit("double", {"n": 2, "m": "é"}), Unit("triple", {"n": 1, "m": "é"})}) == 3


def test_work_is_done_once(store, counter):
    (unit,) = units(3)
    assert store.find(unit) is None
    assert store.need(unit) == store.need(unit) == {"twice": 6}
    assert counter.times == 1
    record = json.loads(store.path(unit).read_text())
    assert record["settings"] == {"n": 3}
    assert record["commit"]


def test_a_deleted_result_is_the_only_one_done_again(store, counter):
    some = units(1, 2, 3)
    assert run(some, store) == []
    store.path(some[1]).unlink()
    assert run(some, store) == []
    assert counter.times == 4


def test_an_interrupted_run_goes_on(store, counter):
    stopping = Unit("double", {"n": 9, "stop": True}, "stops")
    with pytest.raises(KeyboardInterrupt):
        run([*units(1, 2), stopping, *units(3)], store)
    assert [store.find(u) is not None for u in units(1, 2, 3)] == [True, True, False]
    run(units(1, 2, 3), store)
    assert counter.times == 4


def test_what_cannot_be_done_is_said_and_the_rest_is_done(store):
    bad = Unit("double", {"n": 1, "bad": True}, "bad one")
    assert run([bad, *units(5)], store) == [(bad, "this cannot be done.")]
    assert store.find(units(5)[0]) == {"twice": 10}


def test_a_broken_record_is_named(store):
    (unit,) = units(4)
    store.path(unit).parent.mkdir(parents=True)
    store.path(unit).write_text("{}")
    with pytest.raises(InputError, match="is not a stored result; delete it"):
        store.find(unit)


def test_two_processes_do_not_do_the_same_twice(store, counter):
    (unit,) = units(7)
    with ProcessPoolExecutor(2) as pool:
        assert list(pool.map(store.need, [unit] * 4)) == [{"twice": 14}] * 4
    assert counter.times == 1


def test_several_jobs(store, counter):
    assert run(units(*range(6)), store, jobs=2) == []
    assert counter.times == 6
