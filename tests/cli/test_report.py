"""`capri report`, and `capri tune --report`."""

import json
import re
import sys

import numpy as np
import pytest

from capri import Policy, evaluate


def data_of(path):
    text = path.read_text(encoding="utf-8")
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)[1])


@pytest.fixture(scope="module")
def unseen(files):
    """Samples that the policy was not tuned on: (90, 3) logits, labels, and their file."""
    rng, y = np.random.default_rng(8), np.repeat([0, 1, 2], 30)
    scores = rng.normal(size=(90, 3)) + 2 * np.eye(3)[y] + np.log([0.9, 0.09, 0.01])
    np.savez(files / "test.npz", logits=scores, y=y)
    return scores, y, files / "test.npz"


@pytest.fixture
def page(tmp_path):
    return tmp_path / "report.html"


class TestReport:
    def test_a_policy_and_the_samples_that_tuned(self, capri, files, policy, page):
        done = capri("report", files / "val.npz", policy)
        assert (done.code, done.err) == (0, "")
        assert done.out.endswith("Report: report.html\n")
        found = data_of(page)
        assert [view["kind"] for view in found["views"]] == ["in sample"]
        assert found["classes"]["names"] == ["cat", "dog", "lynx"]
        assert found["classes"]["training"] == [900, 90, 10]
        assert found["headline"]["evidence"] == "out of fold"  # by what the policy keeps
        assert len(found["ladder"]) == len(Policy.load(policy).validation.ladder) > 1

    def test_test_samples_speak_first(self, capri, files, policy, page, unseen):
        scores, y, path = unseen
        done = capri("report", files / "val.npz", policy, path, "-o", "report.html")
        assert (done.code, done.err) == (0, "")
        found, rule = data_of(page), Policy.load(policy)
        assert found["views"][0]["kind"] == "test"
        wanted = evaluate(y, rule.apply(scores).argmax(1), 3, ["balanced", "worst"])
        assert {name: found["views"][0]["after"][name] for name in wanted} == pytest.approx(wanted, abs=1e-5)
        assert "on 90 test samples" in done.out

    def test_both_from_one_file(self, capri, files, policy, page):
        keys = ("--scores-key", "val_logits", "--test-key", "test_logits")
        capri("tune", files / "parts.npz", *keys[:2], "-o", "half.json")
        done = capri("report", files / "parts.npz", "half.json", files / "parts.npz", *keys, "-o", "report.html")
        assert (done.code, done.err) == (0, "")
        found = data_of(page)
        assert [view["n_samples"] for view in found["views"]] == [45, 45]
        assert found["facts"]["test samples, from"].endswith("parts.npz: test_logits")

    def test_labels_in_files_of_their_own(self, capri, files, policy, page, unseen):
        scores, y, _ = unseen
        np.save(files / "more.npy", scores)
        np.save(files / "more_labels.npy", y)
        labels = ("--labels", files / "labels.npy", "--test-labels", files / "more_labels.npy")
        done = capri("report", files / "scores.npy", policy, files / "more.npy", *labels, "-o", "report.html")
        assert (done.code, done.err) == (0, "")
        assert len(data_of(page)["views"]) == 2

    def test_columns_in_another_order_are_put_in_the_policys(self, capri, files, policy, page):
        done = capri("report", files / "shuffled.csv", policy, "--label-key", "species", "-o", "report.html")
        assert (done.code, done.err) == (0, "")
        first = data_of(page)["views"][0]["first"]
        capri("report", files / "val.npz", policy, "-o", "report.html")
        assert data_of(page)["views"][0]["first"] == first

    def test_other_samples_than_those_that_tuned_are_remarked_on(self, capri, policy, unseen):
        done = capri("report", unseen[2], policy)
        assert done.code == 0
        assert "by their digest these are not quite the samples that tuned the policy" in done.err

    def test_shares_are_those_that_were_tuned_for_unless_told(self, capri, files, policy, page, data):
        scores, y = data
        for options, shares in (((), [900, 90, 10]), (("--target-shares", "validation"), "validation")):
            assert capri("report", files / "val.npz", policy, *options, "-o", "report.html").code == 0
            wanted = evaluate(y, scores.argmax(1), 3, ["plain"], target_shares=shares)["plain"]
            assert data_of(page)["views"][0]["before"]["plain"] == pytest.approx(wanted, abs=1e-5)

    def test_a_frontier_becomes_a_slider(self, capri, files, page):
        pair = ("--of", "worst", "--against", "err[cat]", "--points", 4)
        capri("tune", files / "val.npz", "--objective", "worst", "-o", "worst.json")
        assert capri("frontier", files / "val.npz", *pair, "-o", "frontier.json").code == 0
        done = capri("report", files / "val.npz", "worst.json", "--frontier", "frontier.json", "-o", "report.html")
        assert (done.code, done.err) == (0, "")
        assert len(data_of(page)["frontier"]["points"]) > 1
        assert 'data-against="err[cat]"' in page.read_text(encoding="utf-8")

    def test_test_samples_that_made_the_frontier_are_no_test_of_it(self, capri, files, policy, page, unseen):
        assert capri("frontier", unseen[2], "--of", "worst", "--points", 2, "-o", "frontier.json").code == 0
        done = capri("report", files / "val.npz", policy, unseen[2], "--frontier", "frontier.json", "-o", "report.html")
        assert done.code == 2
        assert "these samples tuned the frontier" in done.err
        assert not page.exists()

    def test_a_test_file_without_a_class_is_refused_or_told_to_go_on(self, capri, files, policy, data, tmp_path, page):
        scores, y = data
        names = np.array(["cat", "dog", "lynx"])
        np.savez(tmp_path / "test.npz", logits=scores[y < 2], y=y[y < 2], class_names=names)
        done = capri("report", files / "val.npz", policy, "test.npz", "-o", "report.html")
        assert done.code == 2
        assert "--absent ignore" in done.err
        assert not page.exists()
        done = capri("report", files / "val.npz", policy, "test.npz", "--absent", "ignore", "-o", "report.html")
        assert done.code == 0
        assert "'lynx'" in done.err  # one warning
        assert data_of(page)["views"][0]["second"]["values"][2] is None

    def test_what_it_needs_is_asked_for_before_the_work(self, capri, files, policy, page, monkeypatch):
        monkeypatch.setitem(sys.modules, "jinja2", None)
        done = capri("tune", files / "val.npz", "-o", "policy.json", "--report", "report.html")
        assert done.code == 2
        assert 'pip install "capriors[report]"' in done.err
        assert not page.with_name("policy.json").exists()


class TestTune:
    def test_the_page_is_out_of_fold(self, capri, files, page):
        done = capri("tune", files / "val.npz", "--objective", "worst", "-o", "policy.json", "--report", "report.html")
        assert (done.code, done.err) == (0, "")
        assert done.out.endswith("Policy: policy.json\nReport: report.html\n")
        found = data_of(page)
        assert [view["kind"] for view in found["views"]] == ["out of fold", "in sample"]
        assert found["facts"]["samples that tuned, from"].endswith("val.npz: logits")

    def test_json_names_it(self, capri, files):
        done = capri("tune", files / "val.npz", "--method", "la", "--report", "report.html", "--json")
        assert json.loads(done.out)["report"] == "report.html"

    @pytest.mark.parametrize(
        ("name", "message"),
        [("val.npz", "cannot write files of type '.npz' here"), ("names.html", "was given this file twice")],
    )
    def test_it_is_no_file_that_is_read(self, capri, files, tmp_path, name, message):
        (tmp_path / "names.html").write_text("cat\ndog\nlynx\n")
        done = capri("tune", files / "bare.npz", "--class-names", "names.html", "--report", name)
        assert done.code == 2
        assert message in done.err
        assert (tmp_path / "names.html").read_text() == "cat\ndog\nlynx\n"
