"""`capri frontier`: what it prints, writes and refuses."""

import json

import numpy as np
import pytest

from capri import Policy, evaluate, frontier
from capri.posthoc import Frontier

ASKED = ("--of", "worst", "--against", "plain", "--points", 4)


@pytest.fixture
def content(capri, files):
    done = capri("frontier", files / "val.npz", *ASKED, "--json")
    assert done.code == 0, done.err
    return json.loads(done.out)


def test_the_curve_is_that_of_the_library(capri, files, data, content):
    scores, y = data
    labels = np.array(["cat", "dog", "lynx"])[y]
    known = {"classes": ["cat", "dog", "lynx"], "class_counts": [900, 90, 10]}
    found = frontier(scores, labels, "worst", "plain", points=4, **known)
    told = [(point["value"], point["price"], point["held_value"]) for point in content["points"]]
    assert told == [pytest.approx((p.value, p.price, p.held_value)) for p in found.points]
    assert set(content["landmarks"]) == {"unadjusted", "τ = 1", "chosen"}
    assert (content["of"], content["against"], content["held_out"]) == ("worst", "plain", "out of fold")


@pytest.mark.parametrize(
    "arguments",
    [["-o", "points/point00.json"], ["-o", "points/point17.json"], ["--class-counts", "points/point01.json"]],
)
def test_policies_are_not_written_over_other_files_of_the_command(capri, files, tmp_path, arguments):
    (tmp_path / "points").mkdir()
    (tmp_path / "points" / "point01.json").write_text("[900, 90, 10]")
    done = capri("frontier", files / "val.npz", *ASKED, "--policies", "points", *arguments)
    assert (done.code, "choose another" in done.err) == (2, True), done
    assert [(p.name, p.read_text()) for p in (tmp_path / "points").iterdir()] == [("point01.json", "[900, 90, 10]")]


def test_policies_of_another_curve_are_told_from_these(capri, files, tmp_path):
    (tmp_path / "points").mkdir()
    (tmp_path / "points" / "point02.json").write_text("of a longer curve")
    done = capri(
        "frontier", files / "val.npz", "--of", "worst", "--points", 2, "--method", "la", "--policies", "points"
    )
    assert (done.code, "warning: points/point02.json and what may follow it are of another curve" in done.err) == (
        0,
        True,
    )


def test_files_hold_the_curve_and_its_policies(capri, files, data):
    done = capri("frontier", files / "val.npz", *ASKED, "-o", "frontier.json", "--policies", "points")
    assert done.code == 0, done.err
    assert "Curve: frontier.json" in done.out
    found = Frontier.load("frontier.json")
    scores, y = data
    for i, point in enumerate(found.points):
        policy = Policy.load(f"points/point{i:02d}.json")
        assert policy.digest == found.policy(i).digest
        y_named = np.array(["cat", "dog", "lynx"])[y]
        assert evaluate(y_named, policy.predict(scores), objectives=["worst"])["worst"] == pytest.approx(point.value)
    assert f"points/point00.json to point{len(found) - 1:02d}.json" in done.out


def test_the_table_has_a_line_for_every_point(capri, files, content):
    out = capri("frontier", files / "val.npz", *ASKED).out
    assert "worst against plain" in out
    lines = [line.split() for line in out.splitlines()]
    for i, point in enumerate(content["points"]):
        line = next(line for line in lines if line[:1] == [str(i)])
        assert line[1:3] == [f"{100 * point['value']:.1f}", f"{100 * point['price']:.1f}"]
    assert "90 % intervals" in out
    assert "give -o frontier.json" in out


def test_held_out_samples_judge(capri, files, data, tmp_path):
    scores, y = data
    np.savez(tmp_path / "others.npz", logits=scores[::-1], y=y[::-1], class_names=np.array(["cat", "dog", "lynx"]))
    done = capri("frontier", files / "val.npz", *ASKED, "--held-out", tmp_path / "others.npz", "--json")
    assert done.code == 0, done.err
    found = json.loads(done.out)
    assert found["held_out"] == "held-out samples"
    for point in found["points"]:  # they are the same samples, in another order
        assert point["held_value"] == pytest.approx(point["value"])
        assert point["held_price"] == pytest.approx(point["price"], abs=1e-6)
    done = capri("frontier", files / "val.npz", *ASKED, "--held-out", files / "val.csv")
    assert done.code == 2
    assert "held_out holds the samples that tune" in done.err


def test_options_reach_the_search(capri, files):
    limited = ("--constraint", "err[cat] <= 0.2", "--method", "la", "--borrow", 0)
    done = capri("frontier", files / "val.npz", "--of", "worst", *limited, "-o", "frontier.json")
    assert done.code == 0, done.err
    for policy in Frontier.load("frontier.json").policies:
        assert policy.method == "la"
        assert policy.constraints[0] == "err[cat] <= 0.2"
        assert policy.validation.errors_after[0] <= 0.2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--of", "plain"), "--of and --against are both 'plain'"),
        (("--of", "wurst"), "wurst"),
        (("--of", "worst", "--against", "worst_group"), "groups"),
        (("--of", "worst", "--points", 1), "points"),
        (("--of", "worst", "-o", "frontier.csv"), ".csv"),
        (("--of", "worst", "--method", "best"), "--method is 'best'"),
        (("--of", "worst", "--held-out", "missing.npz"), "missing.npz"),
        (("--of", "worst", "--constraint", "err[cat] <= 0", "--constraint", "err[lynx] <= 0"), "no adjustment found"),
    ],
)
def test_what_cannot_be_is_one_line(capri, files, arguments, message):
    done = capri("frontier", files / "val.npz", *arguments)
    assert done.code == 2
    assert message in done.err
    assert len(done.err.strip().splitlines()) == 1
    assert done.out == ""
