"""The right to abstain: the rule, what is asked for, the guard, and everyone who has to know of it."""

import json

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from typer.testing import CliRunner

import capri
from capri import CAPClassifierCV, InputError, LogitAdjuster, Policy, PolicyError, Strategy, evaluate
from capri.blocks import as_source
from capri.cli import commands
from capri.posthoc.abstention import BLOCKS, Blocks, Goal, Samples, Search, accepted, as_asked, find, margins
from capri.posthoc.adjustment import Adjustment
from capri.posthoc.problem import Problem

SHARES = np.array([0.5, 0.25, 0.15, 0.07, 0.03])
NAMES = np.array(list("abcde"))


def draw(n, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.choice(5, n, p=SHARES)
    return rng.normal(size=(n, 5)) + 2 * np.eye(5)[y] + np.log(SHARES), y


class TestRule:
    def test_margins_and_thresholds(self):
        adjusted = np.array([[2.0, 1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.5, 3.0]])
        decisions, margin = margins(adjusted)
        assert decisions.tolist() == [0, 0, 2]
        assert margin.tolist() == [1.0, 0.0, 2.5]
        assert accepted(adjusted, np.array([0.5, 0, 3])).tolist() == [True, False, False]

    def test_the_policy_s_rule_is_the_same(self):
        scores, _ = draw(5000)
        scores[::10, 1] = scores[::10, 0] = scores[::10].max(axis=1)
        thresholds = np.array([0, 0.3, 1.0, 0.5, 2.0])
        policy = Policy(Strategy.of(5, l=[1, 0, -1, 0.5, 0]), "plain", tuple(NAMES), thresholds=tuple(thresholds))
        keep = accepted(policy.apply(scores), thresholds)
        np.testing.assert_array_equal(policy.accepts(scores), keep)
        decided = policy.predict(scores)
        assert all(label is None for label in decided[~keep])
        assert (decided[keep] == NAMES[policy.apply(scores).argmax(axis=1)][keep]).all()

    def test_no_threshold_rejects_nothing_ties_included(self):
        policy = Policy(Strategy.of(2), "plain", (0, 1), thresholds=(0.0, 0.0))
        assert policy.accepts([[1.0, 1.0], [2.0, 0.0]]).all()


class TestAsked:
    @pytest.mark.parametrize(
        ("given", "mode", "number"),
        [(0.1, "rate", 0.1), ("0.25", "rate", 0.25), ("cost:0.3", "cost", 0.3), (np.float32(0.5), "rate", 0.5)],
    )
    def test_numbers(self, given, mode, number):
        asked = as_asked(given)
        assert (asked.mode, asked.number) == (mode, number)

    def test_until(self):
        asked = as_asked("until precision[*] >= 0.9")
        assert (asked.mode, str(asked.constraint)) == ("until", "precision[*] >= 0.9")

    @pytest.mark.parametrize(
        ("given", "message"),
        [
            (0, "between 0 and 1"), (1.5, "between 0 and 1"), ("cost:2", "between 0 and 1"), ("some", "give a share"),
            (True, "give a share such"), ("until plain <= baseline", "needs a number"), ("until 3", "cannot be read"),
            ("cost:1e", "between 0 and 1"), (10**400, "between 0 and 1"),
        ],
    )  # fmt: skip
    def test_what_it_cannot_be(self, given, message):
        with pytest.raises(InputError, match=message):
            as_asked(given)


class TestSearch:
    def test_blocks_are_counted_as_samples_are(self):
        """What the search believes of thresholds at the edges of blocks is what they do."""
        scores, y = draw(800)
        problem = Problem(scores, y, "worst")
        decisions, margin = margins(scores)
        blocks = Blocks.of(problem, decisions, margin, 7)
        goal = Goal(problem, as_asked(0.2), 0.3)
        search, rng = Search(goal, blocks), np.random.default_rng(0)
        for _ in range(20):
            chosen = rng.integers(0, 8, 5)
            keep = margin >= blocks.edges[np.arange(5), chosen][decisions]
            at = search.margins(chosen)
            np.testing.assert_allclose(at.rows, np.bincount(y[keep], minlength=5), atol=1e-9)
            np.testing.assert_allclose(at.columns, np.bincount(decisions[keep], minlength=5), atol=1e-9)
            right = keep & (y == decisions)
            np.testing.assert_allclose(at.hits, np.bincount(y[right], minlength=5), atol=1e-9)
            errors = [1 - right[y == c].sum() / max((keep & (y == c)).sum(), 1) for c in range(5)]
            if at.rows.min() > 0:
                assert goal.value(at) == pytest.approx(max(errors))

    @pytest.mark.parametrize("objective", ["balanced", "worst", "cvar:0.4", "macro_f1", "plain"])
    def test_near_the_best_of_all_thresholds_on_few_classes(self, objective):
        """All pairs of thresholds of two classes, tried one by one."""
        rng = np.random.default_rng(1)
        y = rng.choice(2, 120, p=[0.7, 0.3])
        scores = rng.normal(size=(120, 2)) + 1.2 * np.eye(2)[y]
        problem, neutral = Problem(scores, y, objective), Adjustment.neutral(2)
        asked = as_asked(0.3)
        goal = Goal(problem, asked, 0.4)
        found = find(problem, neutral, asked, 0.4)
        samples = Samples(problem, neutral, goal)
        edges = np.append(np.unique(samples.margin), samples.margin.max() + 1)
        every = (samples.rule(np.array([s, t])) for s in edges[::2] for t in edges[::2])
        best = min(r.value for r in every if r.barred == 0 and r.rejected <= 0.3 + 1e-9)
        nothing = samples.rule(np.zeros(2)).value
        assert found.barred == 0
        assert found.rejected <= 0.3 + 1e-9
        assert found.value <= best + 0.4 * (nothing - best)
        assert found.value < nothing

    @pytest.mark.parametrize("floor", [0.3, 0.6, 0.9])
    @pytest.mark.parametrize("reject", [0.05, 0.4, "cost:0.1", "until precision[*] >= 0.95"])
    @pytest.mark.filterwarnings("ignore:.*Nothing was found")
    def test_no_class_is_rejected_away(self, reject, floor):
        scores, y = draw(1500)
        adjuster = LogitAdjuster("worst", reject=reject, min_coverage=floor, bootstrap=0).fit(scores, y)
        covered = adjuster.policy_.accepts(scores)
        assert min(covered[y == k].mean() for k in range(5)) >= floor
        other, labels = draw(20_000, 1)
        covered = adjuster.policy_.accepts(other)
        assert min(covered[labels == k].mean() for k in range(5)) >= floor - 0.1

    def test_a_rate_is_no_more_than_that_in_the_shares_of_the_world(self):
        scores, y = draw(2000)
        adjuster = LogitAdjuster("cvar:0.4", reject=0.15, bootstrap=0).fit(scores, y)
        assert 0.1 < 1 - adjuster.policy_.accepts(scores).mean() < 0.17
        assert adjuster.abstention_.after < adjuster.abstention_.before

    def test_a_cost_of_nearly_an_error_rejects_hardly_anything(self):
        scores, y = draw(2000)
        dear, cheap = (
            LogitAdjuster("balanced", reject=f"cost:{c}", bootstrap=0).fit(scores, y).abstention_.rejected
            for c in (0.95, 0.1)
        )
        assert dear < 0.05 < cheap

    @pytest.mark.parametrize("text", ["worst <= 0.2", "precision[*] >= 0.75", "plain <= 0.1"])
    @pytest.mark.parametrize("seed", [0, 1])
    @pytest.mark.filterwarnings("ignore:.*Nothing was found")
    def test_what_can_be_kept_is_kept_by_the_labels_too(self, text, seed):
        """Where one threshold for all keeps it, so does what is found, with soft labels as without."""
        scores, y = draw(1500, seed)
        adjuster = LogitAdjuster("balanced", reject=f"until {text}", bootstrap=0).fit(scores, y)
        found, problem = Adjustment.offsets(adjuster.strategy_.l), Problem(scores, y, "balanced")
        samples = Samples(problem, found, Goal(problem, as_asked(f"until {text}"), 0.5))
        alike = [samples.rule(np.full(5, t)) for t in np.quantile(samples.margin, np.linspace(0, 0.95, 39))]
        assert adjuster.abstention_.met or all(rule.value > 0 or rule.barred > 0 for rule in alike)
        assert adjuster.abstention_.met or seed == 1

    @pytest.mark.parametrize("counts", [None, [1000] * 5])
    def test_the_rate_is_kept_by_the_labels_too(self, counts):
        scores, y = draw(2000)
        adjuster = LogitAdjuster("worst", reject=0.1, bootstrap=0).fit(scores, y, class_counts=counts)
        assert adjuster.abstention_.rejected <= 0.1 + 1e-9

    def test_until_a_constraint_holds_and_no_longer(self):
        scores, y = draw(3000)
        adjuster = LogitAdjuster("balanced", reject="until precision[*] >= 0.6", bootstrap=0).fit(scores, y)
        decided = adjuster.predict(scores)
        assert adjuster.abstention_.met
        assert 1 - evaluate(y, decided, 5, ["precision[*]"])["precision[*]"] >= 0.6
        assert evaluate(y, decided, 5)["coverage"] > 0.7

    @pytest.mark.filterwarnings("error")
    def test_what_cannot_be_kept_is_said(self):
        scores, y = draw(600)
        with pytest.warns(UserWarning, match="keeps what was asked for. A lower min_coverage leaves more room"):
            adjuster = LogitAdjuster("balanced", reject="until worst <= 0.001", bootstrap=0).fit(scores, y)
        assert not adjuster.abstention_.met

    def test_many_classes_share_a_threshold(self, monkeypatch):
        import capri.posthoc.abstention as module

        monkeypatch.setattr(module, "LARGEST", BLOCKS[0] * 24.0)
        scores, y = draw(500)
        adjuster = LogitAdjuster("balanced", reject=0.1, bootstrap=0).fit(scores, y)
        assert len(set(adjuster.policy_.thresholds)) == 1

    @pytest.mark.parametrize(
        ("settings", "message"),
        [
            (
                {"objective": capri.objectives.expected_cost(np.ones((5, 5)) - np.eye(5)), "reject": 0.1},
                "whole confusion",
            ),
            ({"objective": "macro_f1", "reject": "cost:0.2"}, "no mean of class errors"),
            ({"reject": 0.1, "guarantee": 0.9}, "cannot be given beside guarantee"),
            ({"reject": 0.1, "constraints": ["worst <= 0.5"]}, "cannot be given beside constraints"),
            ({"reject": 0.1, "min_coverage": 1.0}, "min_coverage"),
        ],
    )
    def test_what_is_not_known_is_refused(self, settings, message):
        with pytest.raises(ValueError, match=message):
            LogitAdjuster(bootstrap=0, **settings).fit(*draw(300))


@pytest.fixture(scope="module")
def fitted():
    scores, y = draw(1500)
    return LogitAdjuster("worst", reject=0.15, bootstrap=0).fit(scores, NAMES[y]), scores, NAMES[y]


class TestThoseWhoHaveToKnow:
    def test_the_file(self, fitted, tmp_path):
        adjuster, scores, _ = fitted
        adjuster.policy_.save(tmp_path / "policy.json")
        document = json.loads((tmp_path / "policy.json").read_text())
        assert document["schema"] == 3
        loaded = Policy.load(tmp_path / "policy.json")
        assert (loaded.predict(scores) == adjuster.predict(scores)).all()
        for wrong in (
            document | {"schema": 2},
            {**document, "policy": {k: v for k, v in document["policy"].items() if k != "thresholds"}},
        ):
            (tmp_path / "wrong.json").write_text(json.dumps(wrong))
            with pytest.raises(PolicyError):
                Policy.load(tmp_path / "wrong.json")

    @pytest.mark.parametrize("thresholds", [(0.1,), (-1.0,) * 5, (np.inf,) * 5, [0.0] * 5, ("a",) * 5])
    def test_thresholds_that_cannot_be_are_refused(self, thresholds):
        with pytest.raises(InputError, match="thresholds"):
            Policy(Strategy.of(5), "plain", tuple(NAMES), thresholds=thresholds)

    def test_evaluate_by_predictions_and_by_blocks(self, fitted):
        adjuster, scores, y = fitted
        decided = adjuster.predict(scores)
        keep = np.array([d is not None for d in decided])
        figures = evaluate(y, decided, NAMES, ["worst", "plain", "macro_f1"])
        alone = evaluate(y[keep], decided[keep].tolist(), NAMES, ["worst", "plain", "macro_f1"])
        assert {name: figures[name] for name in alone} == alone
        assert figures["coverage"] == keep.mean()
        assert figures["min_coverage"] == min(keep[y == n].mean() for n in NAMES)
        blocks = evaluate(as_source(scores, y, rows=100), adjuster.policy_, NAMES, ["worst", "plain", "macro_f1"])
        assert blocks == pytest.approx(figures)

    def test_all_undecided_is_refused(self):
        with pytest.raises(InputError, match="leaves every sample undecided"):
            evaluate([0, 1], [None, None], 2)

    def test_blocks_are_decided_as_arrays_are(self, fitted):
        adjuster, scores, _ = fitted
        assert (adjuster.policy_.predict(as_source(scores, rows=100)) == adjuster.predict(scores)).all()

    @pytest.mark.parametrize("kind", [".csv", ".npz", ".parquet"])
    def test_capri_apply(self, fitted, kind, tmp_path):
        adjuster, scores, y = fitted
        np.savez(tmp_path / "scores.npz", logits=scores, y=y, class_names=NAMES)
        adjuster.policy_.save(tmp_path / "policy.json")
        out = tmp_path / f"out{kind}"
        told = ["apply", str(tmp_path / "scores.npz"), str(tmp_path / "policy.json"), "-o", str(out)]
        result = CliRunner().invoke(commands, told)
        assert result.exit_code == 0, result.output
        assert "left undecided (empty)" in result.stdout
        if kind == ".csv":
            found = out.read_text().splitlines()[1:]
            found = [line.strip('"') for line in found]
        elif kind == ".npz":
            found = np.load(out)["prediction"].tolist()
        else:
            import pyarrow.parquet

            found = pyarrow.parquet.read_table(out)["prediction"].to_pylist()
        assert found == ["" if d is None else d for d in adjuster.predict(scores)]

    def test_capri_tune_evaluate_and_report(self, fitted, tmp_path):
        _, scores, y = fitted
        np.savez(tmp_path / "val.npz", logits=scores, y=y, class_names=NAMES)
        files = {name: str(tmp_path / name) for name in ("val.npz", "policy.json", "report.html")}
        told = ["tune", files["val.npz"], "--objective", "worst", "--reject", "0.2", "-o", files["policy.json"]]
        result = CliRunner().invoke(commands, [*told, "--report", files["report.html"]])
        assert result.exit_code == 0, result.output
        assert "are left undecided (at most 20 %)" in " ".join(result.stdout.split())
        assert "are left undecided (at most 20 %)" in (tmp_path / "report.html").read_text()
        result = CliRunner().invoke(commands, ["evaluate", files["val.npz"], "--policy", files["policy.json"]])
        assert "Decided: " in result.stdout
        assert " decided " in result.stdout  # of each class
        told = ["evaluate", files["val.npz"], "--policy", files["policy.json"], "--json"]
        content = json.loads(CliRunner().invoke(commands, told).stdout)
        assert 0.5 <= content["after"]["min_coverage"] <= content["after"]["coverage"] < 1
        assert min(row["decided"] for row in content["classes"]) == content["after"]["min_coverage"]

    def test_a_layer_cannot_say_it(self, fitted):
        with pytest.raises(InputError, match="no layer can say"):
            capri.fold((np.eye(5), np.zeros(5)), fitted[0].policy_)

    def test_accuracy_is_refused(self, fitted):
        adjuster, scores, y = fitted
        with pytest.raises(InputError, match="leaves some undecided"):
            adjuster.score(scores, y)
        with pytest.raises(InputError, match="leaves some undecided"):
            CAPClassifierCV(LogisticRegression(), reject=0.1).score(scores, y)

    def test_a_classifier(self):
        X, y = draw(1200)
        model = CAPClassifierCV(LogisticRegression(), "worst", cv=3, reject=0.1, bootstrap=0).fit(X, NAMES[y])
        decided = model.predict(X)
        assert 0 < sum(d is None for d in decided) < 0.2 * len(y)
