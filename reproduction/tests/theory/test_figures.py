"""The pictures say what they show, and the command writes them."""

from __future__ import annotations

import numpy as np
import pytest
from typer.testing import CliRunner

from capri_paper.theory import figures, gmm
from capri_paper.theory.cli import app


@pytest.fixture(scope="module")
def margins():
    return figures.margin_figure(n=60, seeds=2)


@pytest.fixture(scope="module")
def low_signal():
    return figures.low_signal_figure(n=60, seeds=2)


def test_every_panel_has_labelled_axes_and_the_curves_a_legend(margins, low_signal):
    for figure in (margins, low_signal):
        left, right = figure.axes
        assert left.get_xlabel()
        assert left.get_ylabel()
        assert right.get_xlabel()
        assert figure.get_suptitle()
    assert [text.get_text() for text in margins.axes[1].get_legend().get_texts()] == [
        "0.5  (minority easier)",
        "1  (equal noise)",
        "2  (minority harder)",
    ]
    assert [text.get_text() for text in low_signal.axes[0].get_legend().get_texts()] == ["1", "1.5", "2", "4"]


def test_the_curves_are_the_solution(margins):
    for panel, pi in zip(margins.axes, figures.FREQUENCIES, strict=True):
        curves = {line.get_label(): line.get_data() for line in panel.lines if "(" in line.get_label()}
        samples, delta = curves["2  (minority harder)"]
        np.testing.assert_allclose(delta, gmm.solve(pi, 2**0.5, 1, 2, 1 / samples).delta_star)


def test_there_is_a_dot_with_a_bar_for_each_simulated_setting(margins):
    for panel in margins.axes:
        dots = panel.containers
        assert len(dots) == len(figures.VARIANCE_RATIOS) * len(figures.SIMULATED_AT)
    bare = figures.margin_figure(seeds=0)
    assert not any(panel.containers for panel in bare.axes)


def test_map_of_the_claim():
    verdicts = figures.claim_map(0.1, np.array([1.0, 4.0, 10.0]), np.array([0.2, 1.0, 2.0]))
    names = np.array([name.split("\n")[0] for name in figures.VERDICTS])[verdicts]
    assert names.tolist() == [
        ["claim reversed:", "not", "not"],
        ["claim reversed:", "δ* = ∞", "not"],
        ["claim holds:", "claim holds:", "δ* = ∞"],
    ]


def test_command_writes_both_pictures(tmp_path):
    result = CliRunner().invoke(app, ["--out", str(tmp_path / "new"), "--seeds", "0", "--format", "svg"])
    assert result.exit_code == 0, result.output
    written = sorted(path.name for path in (tmp_path / "new").iterdir())
    assert written == ["theory_low_signal.svg", "theory_margins.svg"]
    assert all(name in result.output for name in written)


def test_pictures_are_reproducible(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        figures.save(figures.margin_figure(seeds=0), tmp_path / name / "picture.svg")
    assert (tmp_path / "a" / "picture.svg").read_bytes() == (tmp_path / "b" / "picture.svg").read_bytes()
