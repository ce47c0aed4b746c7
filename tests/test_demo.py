"""The demonstration, and its command."""

import io
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console
from typer.testing import CliRunner

import capri
from capri import InputError, Strategy, demo, packs
from capri.__main__ import main
from capri.cli import commands
from capri.cli.demo import differences, markdown, table
from capri.study import Study

UNTUNED = {name: demo.METHODS[name] for name in ("as trained", "LA, τ = 1")}


@pytest.fixture(scope="module")
def splits():
    return [demo.long_tailed_digits(seed) for seed in range(2)]


def test_splits_are_long_tailed_and_disjoint_in_their_use(splits):
    first, second = splits
    assert first.train_counts[0] == 90
    assert first.train_counts[-1] == 3
    assert (np.diff(first.train_counts) < 0).all()
    assert first.val_scores.shape == (len(first.val_y), 10)
    assert set(first.test_y) == set(first.val_y) == set(range(10))
    assert not np.array_equal(first.test_scores, second.test_scores)


def test_splits_are_drawn_the_same_each_time(splits):
    again = demo.long_tailed_digits(0)
    np.testing.assert_array_equal(again.test_y, splits[0].test_y)
    np.testing.assert_allclose(again.test_scores, splits[0].test_scores, atol=1e-6)


def test_a_damaged_pack_is_refused(tmp_path, monkeypatch):
    content = bytearray((Path(packs.__file__).parent / "cifar10-lt.npz").read_bytes())
    content[len(content) // 2] ^= 1
    (tmp_path / "cifar10-lt.npz").write_bytes(content)
    monkeypatch.setattr(packs.resources, "files", lambda _: tmp_path)
    with pytest.raises(InputError, match=r"the pack 'cifar10-lt' is damaged: its SHA-256 is not .* install"):
        packs.load.__wrapped__("cifar10-lt")


def test_every_pack_has_its_digest():
    files = {path.name for path in Path(packs.__file__).parent.glob("*.npz")}
    assert files == {f"{name}.npz" for name in packs.names()}


def test_packs_are_halved_by_class():
    split = demo.DATASETS["cifar10-lt"].split(3)
    assert (np.bincount(split.val_y) == 500).all()
    assert (np.bincount(split.test_y) == 500).all()
    everything = np.concatenate([split.val_scores, split.test_scores])
    assert len(np.unique(everything, axis=0)) > 9990  # no image is in both halves
    assert packs.load("cifar10-lt").card["config"]["seed"] == 0
    with pytest.raises(capri.InputError, match="there is no pack 'mnist'; there are cifar10"):
        packs.load("mnist")


def test_logit_adjustment_helps_the_tail_it_was_made_for():
    results = demo.run("digits", n_splits=2, methods=UNTUNED)
    before, after = (results.values[method]["balanced"].mean() for method in UNTUNED)
    assert after < before
    rare = results.class_errors["as trained"]["balanced"][:, -3:].mean()
    assert results.class_errors["LA, τ = 1"]["balanced"][:, -3:].mean() < rare


def test_weights_are_known_to_those_who_tune_for_the_weighted_error(splits):
    seen = {}

    def curious(split, objective):
        seen[objective] = split.weights
        return Strategy.of(10)

    demo.run("digits", n_splits=1, methods={"curious": curious}, objectives=("sdev", "weighted"))
    assert seen["sdev"] is None
    np.testing.assert_array_equal(seen["weighted"], splits[0].weights)


class TestCommand:
    def test_prints_a_table_and_leaves_it_with_a_picture(self, tmp_path):
        done = CliRunner().invoke(
            commands,
            ["demo", "--data", "digits", "--splits", "2", "--jobs", "2", "--out", str(tmp_path)],
            env={"COLUMNS": "80"},
        )
        assert done.exit_code == 0, done.output
        for text in ("as trained", "logit adjustment", *demo.OBJECTIVES, "±"):
            assert text in done.output
        assert "stays at or below that of the model as trained" in " ".join(done.output.split())
        assert (tmp_path / "class_errors.png").read_bytes().startswith(b"\x89PNG")
        page = (tmp_path / "report.html").read_text(encoding="utf-8")
        assert "CVaR 0.2 falls from" in page
        assert "test samples" in page
        rows = (tmp_path / "table.md").read_text().splitlines()
        assert rows[0] == "| method | balanced | sdev | cvar:0.2 | quantile:0.2 | weighted |"
        assert len([row for row in rows if row.startswith("|")]) == 2 + len(demo.METHODS) + 2 + 3
        assert "| CAP, pooled minus | balanced | sdev | cvar:0.2 | quantile:0.2 | weighted |" in rows

    def test_fits_a_terminal(self):
        row = {o: np.array([0.611, 0.623]) for o in demo.OBJECTIVES}
        better = {o: v - 0.05 for o, v in row.items()}
        names = {"as trained": row, "LA, tuned": row, "plain": row, "CAP, pooled": better}
        results = Study(values=names, validation={}, balanced={}, class_errors={})
        console = Console(width=80, record=True, file=io.StringIO())
        console.print(table(results), differences(results))
        shown = console.export_text()
        assert "…" not in shown
        assert re.search(r"as trained +61\.7 ± 0\.8", shown)
        assert re.search(r"as trained +-5\.0 ± 0\.0", shown)
        assert re.search(r"plain +-5\.0 ± 0\.0", shown)
        assert "| as trained | 61.7 ± 0.8 | 61.7 ± 0.8 |" in markdown(results, 2)

    def test_shows_a_row_that_is_added_to_the_methods(self, tmp_path, monkeypatch):
        def half(split, objective):
            return Strategy.logit_adjustment(split.train_counts, tau=0.5)

        monkeypatch.setitem(demo.METHODS, "half way", half)
        done = CliRunner().invoke(
            commands,
            ["demo", "--data", "digits", "--splits", "1", "--jobs", "1", "--out", str(tmp_path)],
            env={"COLUMNS": "200"},
        )
        assert done.exit_code == 0, done.output
        assert "half way" in done.output
        assert "| half way |" in (tmp_path / "table.md").read_text()

    def test_names_data_that_it_does_not_have(self, monkeypatch, capsys):
        monkeypatch.setattr(sys, "argv", ["capri", "demo", "--data", "letters"])
        with pytest.raises(SystemExit) as ended:
            main()
        assert ended.value.code == 2
        assert capsys.readouterr().err.startswith("capri: --data is 'letters'; there are cifar100-lt")

    def test_without_its_libraries_says_what_to_install(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "capri.cli", None)
        with pytest.raises(
            SystemExit, match=r'command line of capri needs capri.cli: pip install "capriors\[report\]"'
        ):
            main()

    def test_runs_as_a_module(self):
        done = subprocess.run([sys.executable, "-m", "capri", "--help"], capture_output=True, text=True, check=True)
        assert "demo" in done.stdout
