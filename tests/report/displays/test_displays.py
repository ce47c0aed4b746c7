"""What all displays have in common: they draw for any number of classes and any names, into axes and into files."""

import subprocess
import sys

import matplotlib.pyplot as plt
import pytest

from capri import InputError, Policy, report
from capri.report.displays._drawing import Display, escaped


def drawn(name, given, ax=None, **how):
    display = getattr(report, name)
    counts = {"class_counts": given.counts}
    held = given.held_scores, given.held_labels
    if name == "ClassErrorDisplay":
        return display.from_estimator(given.adjuster, *held, **counts, ax=ax, **how)
    if name == "LineDisplay":
        return display.from_estimator(given.adjuster, *held, ax=ax, **how)
    if name == "ConfusionDifferenceDisplay":
        return display.from_estimator(given.adjuster, *held, ax=ax, **how)
    if name == "SamplesDisplay":
        return display.from_estimator(given.adjuster, *held, **counts, sizes=[2, 4], repeats=2, ax=ax, **how)
    return display.from_estimator(given.adjuster, ax=ax, **how)


NAMES = [name for name in report.__all__ if name.endswith("Display") and name != "FrontierDisplay"]


@pytest.mark.parametrize("name", NAMES)
class TestEvery:
    def test_number_of_classes(self, name, of_size):
        display = drawn(name, of_size)
        display.figure_.canvas.draw()
        assert display.ax_.figure is display.figure_

    def test_class_without_samples(self, name, lacking):
        drawn(name, lacking).figure_.canvas.draw()

    def test_name_is_shown_as_it_is(self, name, hostile, tmp_path):
        display = drawn(name, hostile, title="costs $5 and $6")
        texts = [t for t in display.figure_.findobj(plt.Text) if t.get_text()]
        assert any("costs" in t.get_text() for t in texts)
        display.save(tmp_path / "picture.svg")
        assert b"<script>" not in (tmp_path / "picture.svg").read_bytes()

    def test_is_drawn_into_axes_that_are_given(self, name, ten):
        figure, axes = plt.subplots()
        display = drawn(name, ten, ax=axes)
        assert (display.figure_, display.ax_) == (figure, axes)
        assert plt.get_fignums() == [figure.number]

    def test_is_saved_off_screen(self, name, ten, tmp_path):
        display = drawn(name, ten)
        plt.close("all")
        assert display.save(tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")
        assert plt.get_fignums() == []

    def test_has_a_title_where_one_is_given(self, name, ten):
        assert drawn(name, ten, title="of some samples").ax_.get_title(loc="left") == "of some samples"

    def test_policy_is_an_estimator(self, name, ten):
        if name == "SamplesDisplay":
            with pytest.raises(InputError, match="cannot be tuned again"):
                drawn(name, ten._replace(adjuster=ten.adjuster.policy_))
        else:
            drawn(name, ten._replace(adjuster=Policy.from_json(ten.adjuster.policy_.to_json())))

    def test_anything_else_is_refused(self, name, ten):
        with pytest.raises(InputError, match="give a fitted LogitAdjuster"):
            drawn(name, ten._replace(adjuster="policy.json"))

    def test_public_name_is_found(self, name):
        assert issubclass(getattr(report, name), Display)


def test_importing_displays_loads_no_matplotlib():
    code = "import sys, capri.report as r; [getattr(r, n) for n in r.__all__]; print('matplotlib' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_a_look_does_not_outlive_its_figure(ten):
    before = plt.rcParams["axes.grid"], plt.rcParams["font.size"], plt.get_backend()
    drawn("LadderDisplay", ten)
    assert (plt.rcParams["axes.grid"], plt.rcParams["font.size"], plt.get_backend()) == before


def test_escaped_names_are_drawn_as_they_are(hostile_name):
    figure, axes = plt.subplots()
    text = axes.set_title(escaped(hostile_name, longest=1000))
    figure.canvas.draw()
    shown, is_math = text._preprocess_math(text.get_text())
    assert (shown, bool(is_math)) == (" ".join(hostile_name.split()), False)
