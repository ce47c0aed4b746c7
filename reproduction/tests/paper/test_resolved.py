"""A changed default finds no old number, and only where it matters. All of it on the results in the repository."""

import json
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from capri import dictionary
from capri.posthoc import LogitAdjuster, adjuster, calibration, line, methods, pooling, problem, search, smooth
from capri.train import config, search_config
from capri.train.settings import option
from capri_paper import posthoc, resolved, steps
from capri_paper.cli import _exhibit, exhibits
from capri_paper.exhibits import Only
from capri_paper.store import Store, Unit
from capri_paper.training import pretrain, pretrained, train, transfer

ROOT = Path(__file__).parents[3]
STORE = Store(ROOT / "reproduction" / "results", ROOT / "data", {})


@dataclass(frozen=True)
class FasterSearch(search_config.SearchConfig):
    lr: float = option(0.05, "of the outer level")


@dataclass(frozen=True)
class ClippedTrainer(config.TrainerConfig):
    gradient_clip: float = option(1.0, "largest norm of the gradient; 0: none")


def forget():
    resolved.run.cache_clear()
    resolved.tuner.cache_clear()


@pytest.fixture
def change(monkeypatch):
    """Set a default, and forget what was resolved under another."""

    def to(module, name, value):
        monkeypatch.setattr(module, name, value)
        forget()

    yield to
    monkeypatch.undo()
    forget()


def on_pages():
    """Exhibits under other presets and settings, as commands on the pages of the manual show them."""
    for page in (ROOT / "docs").glob("*.md"):
        for command in re.findall(r"<!-- \$ capri paper show (\S+ .*) -->", page.read_text(encoding="utf-8")):
            name, *words = shlex.split(command)
            said = list(pairwise(words))
            preset = next((value for option, value in said if option == "--preset"), "cpu")
            changes = [value for option, value in said if option == "--set"]
            if preset != "cpu" or changes:
                yield from _exhibit(name, changes).units(range(5), preset, Only.parse())


def asked_for():
    """All units of the tables and figures and those that they rest on, once each."""
    waiting = [u for e in exhibits().values() for u in e.units(range(5), "cpu", Only.parse())]
    waiting += on_pages()
    found = {}
    while waiting:
        unit = waiting.pop()
        if unit not in found:
            found[unit] = unit
            waiting += unit.needs
    return list(found)


def stored():
    """Kind and label of what is found. Labels tell units apart, and are the same under any default."""
    return {(unit.kind, unit.label) for unit in asked_for() if STORE.find(unit) is not None}


@pytest.fixture(scope="module")
def before():
    found = stored()
    assert len(found) > 1000
    return found


def test_the_outer_rate_is_part_of_every_search_that_does_not_set_it(before, change):
    change(search_config, "SearchConfig", FasterSearch)
    after = stored()
    assert before - after == {(kind, label) for kind, label in before if kind == "bilevel" and "-lr0" not in label}
    assert {kind for kind, _ in after} == {"train", "grid", "pretrain", "transfer", "posthoc", "steps", "bilevel"}


def test_a_default_of_training_is_part_of_all_that_trains(before, change):
    change(config, "TrainerConfig", ClippedTrainer)
    assert {kind for kind, _ in stored()} == {"posthoc", "steps"}


@pytest.mark.parametrize(
    ("module", "name", "value", "touched"),
    [
        (pooling, "UNIT", 10.0, {"pooled", "plain offsets"}),
        (calibration, "BIAS_SPREAD", 0.1, {"pooled", "plain offsets"}),
        (smooth, "SHARPNESS", 4.0, {"plain", "pooled"}),
        (dictionary, "BETA", 0.1, {"cap", "pooled", "plain offsets", "steps", "search"}),
        (search, "MULTIPLIER_LIMIT", 3.0, {"multipliers"}),
        (methods, "GAMMAS", methods.GAMMAS[::2], {"cdt"}),
        (methods, "METHOD_ROUNDS", 2, {"la", "cap", "plain offsets"}),
        (methods, "FREE_ITERATIONS", 40, {"plain"}),
        (search, "DIRECTIONS", 4, {"cap", "plain", "pooled"}),
        (search, "ROUNDS", 5, {"pooled", "plain offsets"}),
        (steps, "MOMENTUM", 0.9, {"steps"}),
    ],
)
def test_a_constant_is_part_of_the_methods_that_use_it(before, change, module, name, value, touched):
    change(module, name, value)
    after = stored()
    assert before - after == {unit for unit in before if uses(*unit) & touched}
    assert after


def uses(kind, label):
    """What a unit is made of, told from its label."""
    if kind == "steps":
        return {"steps"}
    if kind == "bilevel":
        return set() if "-identity-" in label else {"search"}
    if kind not in ("posthoc", "transfer"):
        return set()
    parts = label.replace("cifar100-lt", "").replace("cifar10-lt", "").replace("clinc150-lt", "").split("-")
    found = {"multipliers"} if {"delta", "both"} & set(parts) else set()
    method = next(name for name in ("pooled", "plain", "pretrained", "cap", "la", "cdt") if name in parts)
    return found | {method} | ({"plain offsets"} if method == "plain" and not found else set())


@pytest.mark.parametrize(
    ("module", "name", "value"),
    [
        (pooling, "SHARED", 0.1),
        (pooling, "FEW", 3),
        (pooling, "CARE", 1.0),
        (pooling, "CAUTION", 2.0),
        (pooling, "OPINION", 5.0),
        (calibration, "SCALE_SPREAD", 2.0),
        (calibration, "NOISE_MEAN", -2.0),
        (calibration, "NOISE_SPREAD", 0.5),
        (calibration, "LEAST_IMPORTANCE", 0.2),
        (calibration, "LEAST_SHARE", 1.0),
        (calibration, "ITERATIONS", 30),
        (smooth, "HINGE", 10.0),
        (smooth, "MARGIN_SAMPLES", 100),
        (smooth, "ITERATIONS", 20),
        (smooth, "PRECISION", 1e-4),
        (dictionary, "BASIS", {"log": np.log}),
        (dictionary, "FLOOR", 1e-3),
        (dictionary, "WHITEN_TOLERANCE", 0.1),
        (line, "RESOLUTION", 1e-6),
        (problem, "TOLERANCE", 1e-6),
        (problem, "ROUNDING", 1e-6),
        (adjuster, "SPREAD_GUARD", "plain <= baseline"),
    ],
)
def test_the_other_constants_of_pooled_tuning(change, module, name, value):
    old = resolved.tuner("sdev", method="cap", parameters="l", pooling="auto")
    change(module, name, value)
    assert resolved.tuner("sdev", method="cap", parameters="l", pooling="auto") != old


def test_a_default_of_the_tuner_is_part_of_all_that_tunes(before, change, monkeypatch):
    monkeypatch.setitem(LogitAdjuster.__init__.__kwdefaults__, "scaling", "standardize")
    forget()
    after = stored()
    tuned = {(kind, label) for kind, label in before if kind in ("posthoc", "transfer") and "-pretrained-" not in label}
    assert before - after == tuned


@pytest.mark.parametrize("objective", ["cvar:0.4", "weighted"])
def test_what_runs_is_what_the_key_says(monkeypatch, tmp_path, objective):
    """Whatever the defaults are by then; only what comes with the scores is added."""
    unit = posthoc.posthoc("", 0, "smoke", "cap", objective, constraint="plain <= 0.9")
    keyed = json.loads(json.dumps(unit.settings["tuner"]["parameters"])) | {"scaling": "raw", "random_state": 7}
    ran, fit = [], LogitAdjuster.fit
    monkeypatch.setattr(LogitAdjuster, "fit", lambda self, *a, **k: ran.append(self.get_params()) or fit(self, *a, **k))
    changed = Unit("posthoc", {**unit.settings, "draws": 1, "tuner": {"parameters": keyed}})
    posthoc.do_posthoc(changed, Store(tmp_path, tmp_path, {}))
    (used,) = ran
    assert {name: used[name] for name in keyed} == keyed
    assert set(used) - set(keyed) == {*resolved.ELSEWHERE, *resolved.NEUTRAL}
    assert {name: used[name] for name in resolved.NEUTRAL} == resolved.NEUTRAL


def test_a_unit_changes_with_what_it_rests_on(change):
    units = {
        "transfer": lambda: transfer("clinc150-lt", 0, "cpu", "la", "l", retrain=False),
        "pretrained": lambda: pretrained("cifar10-lt", 0, "cpu", ["identity"], "search.tau=0.0"),
    }
    old = {name: make() for name, make in units.items()}
    assert old["transfer"].needs == (train("clinc150-lt", 0, "cpu", "data.val_fraction=0.2"),)
    assert old["pretrained"].needs == (pretrain("cifar10-lt", 0, "cpu"),)
    change(config, "TrainerConfig", ClippedTrainer)
    assert all(make() != old[name] for name, make in units.items())
    assert units["transfer"]().settings == old["transfer"].settings  # only what it rests on has changed


def test_where_files_lie_is_no_part_of_it():
    here = resolved.run("cpu", ("data.root=here", "out=there"))
    assert here == resolved.run("cpu", ())
    assert resolved.as_config(here).digest() == config.resolve(preset="cpu").digest()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("data.operations", "one"),
        ("data.cutout", 12),
        ("optimizer.sam", 0.1),
        ("optimizer.sam_every", 2),
        ("trainer.ema", 0.9),
        ("search.draw", "importance"),
        ("search.average", 0.25),
        ("search.prior", 0.25),
        ("search.trust", True),
        ("search.network_epochs", 5),
    ],
)
def test_a_setting_that_is_neutral_is_no_part_of_it(name, value):
    section, setting = name.split(".")
    neutral = resolved.NEUTRAL_RUN[section][setting]
    for searches in (False, True)[section == "search" :]:
        old, same, new = (
            resolved.run("cpu", changes, searches=searches)
            for changes in ((), (f"{name}={json.dumps(neutral)}",), (f"{name}={json.dumps(value)}",))
        )
        assert Unit("train", {"run": same}).digest == Unit("train", {"run": old}).digest
        assert Unit("train", {"run": new}).digest != Unit("train", {"run": old}).digest
        assert setting not in old[section]
        assert config.setting(resolved.as_config(old), name) == neutral
        assert config.setting(resolved.as_config(new), name) == value
        assert resolved.changed(new, (f"{name}={json.dumps(neutral)}",)) == old


@dataclass(frozen=True)
class AugmentedData(config.DataConfig):
    cutout: int = option(8, "of another default")


def test_a_neutral_setting_stays_neutral_when_its_default_is_another(change):
    old = resolved.run("cpu", ())
    change(config, "DataConfig", AugmentedData)
    assert resolved.run("cpu", ()) != old
    assert resolved.as_config(old).data.cutout == 0


def test_every_neutral_setting_exists_and_is_the_default():
    defaults = search_config.SearchRun().settled().to_mapping()
    for section, neutral in resolved.NEUTRAL_RUN.items():
        assert {name: defaults[section][name] for name in neutral} == neutral


def test_resolving_needs_no_torch():
    code = "import sys, capri_paper.cli as c; from capri_paper.exhibits import Only; " \
        "[u.digest for e in c.exhibits().values() for u in e.units([0], 'cpu', Only.parse())]; " \
        "sys.exit('torch' in sys.modules)"  # fmt: skip
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


# -- what is in the repository ----------------------------------------------------------------------------------------


def test_every_stored_result_is_asked_for():
    wanted = {(unit.kind, unit.digest) for unit in asked_for()}
    kept = {(path.stem, digest) for path in STORE.root.glob("*.jsonl") for digest in STORE.records(path.stem)}
    assert kept <= wanted


def test_files_are_sorted_and_written_as_the_store_writes_them():
    for path in STORE.root.glob("*.jsonl"):
        lines = path.read_text(encoding="utf-8").splitlines()
        records = [json.loads(line) for line in lines]
        assert records == sorted(records, key=lambda r: (r["label"], r["digest"]))
        assert lines == [json.dumps(r, ensure_ascii=False) for r in records]


def test_only_what_a_later_unit_starts_from_is_kept_of_runs():
    listed = subprocess.run(["git", "ls-files", "reproduction/results/runs"], cwd=ROOT, capture_output=True, text=True)
    folder = STORE.folder(pretrain("cifar10-lt", 0, "cpu"))
    assert listed.stdout.split() == [str((folder / "encoder.safetensors").relative_to(ROOT))]


def test_no_result_is_a_copy_of_another_file():
    listed = subprocess.run(
        ["git", "ls-files", "reproduction/results", "src/capri/packs"], cwd=ROOT, capture_output=True
    )
    files = [ROOT / name for name in listed.stdout.decode().split()]
    assert len(files) > 5
    assert len({path.read_bytes() for path in files}) == len(files)
