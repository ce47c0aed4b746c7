"""Results are computed once, and found by a digest of all that decides them."""

import json
import os
import signal
from concurrent.futures import ProcessPoolExecutor

import pytest

from capri import InputError
from capri.cli import app
from capri_paper import runner
from capri_paper import store as module
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


def lines(store):
    return store.path("double").read_text(encoding="utf-8").splitlines()


def rewrite(store, changed):
    store.path("double").write_text("".join(f"{line}\n" for line in changed), encoding="utf-8")


def test_the_address_is_of_the_content():
    a = Unit("double", {"n": 1, "m": "é"}, "one")
    assert a == Unit("double", {"m": "é", "n": 1}, "other label")
    assert len({a, Unit("double", {"n": 2, "m": "é"}), Unit("triple", {"n": 1, "m": "é"})}) == 3


def test_the_address_is_of_what_it_rests_on_too():
    first, other = units(1, 2)
    assert Unit("sum", {}, needs=(first, other)) == Unit("sum", {}, needs=(other, first))
    assert len({Unit("sum", {}), Unit("sum", {}, needs=(first,)), Unit("sum", {}, needs=(other,))}) == 3


def test_a_new_version_of_the_code_finds_nothing(store, monkeypatch):
    store.need(units(1)[0])
    monkeypatch.setattr(module, "VERSIONS", {"double": 2})
    assert store.find(units(1)[0]) is None
    store.need(units(1)[0])
    assert [json.loads(line)["version"] for line in lines(store)] in ([1, 2], [2, 1])  # the old one stays readable


def test_work_is_done_once(store, counter):
    (unit,) = units(3)
    assert store.find(unit) is None
    assert store.need(unit) == store.need(unit) == {"twice": 6}
    assert counter.times == 1
    (record,) = map(json.loads, lines(store))
    assert (record["label"], record["digest"]) == ("n3", unit.digest)
    assert record["settings"] == {"n": 3}
    assert record["commit"]


def test_lines_are_sorted_by_label_however_they_came(store):
    for unit in units(5, 1, 3):
        store.need(unit)
    assert [json.loads(line)["label"] for line in lines(store)] == ["n1", "n3", "n5"]


def test_a_file_is_read_once_until_it_changes(store, monkeypatch):
    some = units(1, 2)
    store.need(some[0])
    store.find(some[0])
    real, read = module.key, []
    monkeypatch.setattr(module, "key", lambda *a: read.append(a[0]) or real(*a))
    assert [store.find(some[0]) for _ in range(5)] == [{"twice": 2}] * 5
    assert read == []
    store.need(some[1])
    assert store.find(some[1]) == {"twice": 4}


def test_a_deleted_result_is_the_only_one_done_again(store, counter):
    some = units(1, 2, 3)
    assert run(some, store) == []
    before = lines(store)
    rewrite(store, [before[0], before[2]])
    assert run(some, store) == []
    assert counter.times == 4
    assert [json.loads(a)["result"] for a in lines(store)] == [json.loads(a)["result"] for a in before]


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


@pytest.mark.parametrize("content", ["{}", "half a li", '{"label": "n4", "digest": "0"}', "[]"])
def test_a_broken_line_is_named(store, content):
    store.need(units(4)[0])
    rewrite(store, [*lines(store), content])
    with pytest.raises(InputError, match=r"double\.jsonl, line 2.* is not a stored result; delete the line"):
        store.find(units(4)[0])


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ('{"n": 5}', '{"n": 6}', r"the digest \w+ is not that of its settings"),
        ('{"twice": 10}', '{"twice": 9}', r"the checksum is not that of its result; .* Delete it"),
    ],
)
def test_an_edited_line_is_refused(store, before, after, message):
    for unit in units(4, 5):
        store.need(unit)
    rewrite(store, [line.replace(before, after) for line in lines(store)])
    with pytest.raises(InputError, match=r"double\.jsonl, line 2 \(n5\): " + message):
        store.find(units(4)[0])


def test_a_result_under_the_key_of_another_is_refused(store):
    for unit in units(4, 5):
        store.need(unit)
    first, second = map(json.loads, lines(store))
    rewrite(store, map(json.dumps, [first, second | {name: first[name] for name in ("result", "checksum")}]))
    with pytest.raises(InputError, match=r"line 2 \(n5\): the checksum is not"):
        store.find(units(4)[0])


@pytest.mark.parametrize("result", [{"b": 0.1 + 0.2, "a": [1, None, "é"]}, {1: (2, 3)}, {"nan": float("nan")}])
def test_what_was_written_is_read(store, result):
    """Whatever its types, and in whatever order its names stand."""
    (unit,) = units(4)
    Store(store.root, store.data, {"double": lambda unit, store: result}).need(unit)
    assert json.dumps(store.find(unit)) == json.dumps(result)


def test_a_line_that_is_there_twice_is_refused(store):
    store.need(units(4)[0])
    rewrite(store, lines(store) * 2)
    with pytest.raises(InputError, match=r"line 2 \(n4\) is there twice"):
        store.find(units(4)[0])


def test_the_folder_is_that_of_the_digest_whatever_the_label(store):
    unit, other = Unit("double", {"n": 4}, "four"), Unit("double", {"n": 4}, "2 + 2")
    assert store.folder(unit).name == f"four-{unit.digest}"
    assert store.folder(Unit("double", {"n": 4})).name == unit.digest
    store.folder(unit).mkdir(parents=True)
    assert store.folder(other) == store.folder(Unit("double", {"n": 4})) == store.folder(unit)
    assert store.folder(Unit("double", {"n": 5}, "four")) != store.folder(unit)


def test_what_it_rests_on_is_written_down(store):
    first, total = units(1)[0], Unit("double", {"n": 2}, "total", needs=tuple(units(1)))
    store.need(total)
    assert [json.loads(line)["needs"] for line in lines(store)] == [{first.digest: "n1"}]
    assert store.find(total) == {"twice": 4}


def test_two_processes_do_not_do_the_same_twice(store, counter):
    (unit,) = units(7)
    with ProcessPoolExecutor(2) as pool:
        assert list(pool.map(store.need, [unit] * 4)) == [{"twice": 14}] * 4
    assert counter.times == 1


def test_several_processes_lose_no_line(store, counter):
    some = units(*range(24))
    with ProcessPoolExecutor(4) as pool:
        list(pool.map(store.need, some))
    assert counter.times == len(lines(store)) == 24
    assert all(store.find(unit) == {"twice": 2 * unit.settings["n"]} for unit in some)


def test_several_jobs(store, counter):
    assert run(units(*range(6)), store, jobs=2) == []
    assert counter.times == 6


@pytest.mark.parametrize("name", ["double", "double-{}"])
def test_a_link_in_the_place_of_a_lock_does_not_empty_its_target(store, tmp_path, name):
    (unit,) = units(7)
    target, lock = tmp_path / "precious", store.root / "locks" / name.format(unit.digest)
    target.write_text("kept")
    lock.parent.mkdir(parents=True)
    lock.symlink_to(target)
    with pytest.raises(InputError, match="in the place of a lock and is none"):
        store.need(unit)
    assert target.read_text() == "kept"


def test_what_a_killed_process_left_half_written_goes(store):
    store.need(units(1)[0])
    left = store.root / ".double.jsonl.abcd1234.part"
    left.write_text("half a li")
    store.need(units(2)[0])
    assert not left.exists()


def test_a_run_that_is_told_to_stop_does_not_end_as_done(store, monkeypatch, capsys):
    def stop(unit, store):
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setitem(runner.WORKS, "posthoc", stop)
    with pytest.raises(SystemExit) as ended:
        app(["paper", "run", "quantile", "--preset", "smoke", "--seeds", "1", "--results", str(store.root)])
    assert ended.value.code == 143
    said = "capri: stopped by SIGTERM. What is done is kept: run the same command again, and it goes on."
    assert capsys.readouterr().err.splitlines()[-1] == said


def test_a_line_that_is_not_text_is_refused(store):
    store.need(units(1)[0])
    path = store.path("double")
    path.write_bytes(path.read_bytes().replace(b"twice", b"tw\xffce"))
    with pytest.raises(InputError, match=r"line 1 is not a stored result; delete the line"):
        store.find(units(1)[0])
