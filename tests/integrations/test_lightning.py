"""Lightning with a tiny network: tuned every epoch, and the policy in the checkpoint."""

import numpy as np
import pytest

pytest.importorskip("lightning")
import lightning as L
import torch
from torch.utils.data import DataLoader, TensorDataset

from capri import InputError, LogitAdjuster, Policy, Strategy, evaluate
from capri._checks import InputWarning
from capri.bilevel import ParametricCrossEntropy
from capri.integrations import CAPTuning
from capri.integrations.scores import Validation

pytestmark = pytest.mark.filterwarnings("ignore")
COUNTS, NAMES = [100, 20, 5], ["common", "rare", "rarer"]


def samples(counts, seed):
    rng = np.random.default_rng(seed)
    y = np.repeat(np.arange(3), counts)
    x = rng.normal(size=(len(y), 4)) + np.eye(3, 4)[y]
    return TensorDataset(torch.tensor(x, dtype=torch.float32), torch.tensor(y))


class Module(L.LightningModule):
    def __init__(self, form="mapping"):
        super().__init__()
        self.net, self.form = torch.nn.Linear(4, 3), form
        self.loss = ParametricCrossEntropy(Strategy.of(3))

    def training_step(self, batch):
        return self.loss(self.net(batch[0]), batch[1])

    def validation_step(self, batch):
        logits = self.net(batch[0])
        return {"mapping": {"logits": logits}, "named": {"logits": logits, "y": batch[1]}, "bare": logits}[self.form]

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), 0.05)


def train(folder, tuning, form="mapping", **settings):
    torch.manual_seed(0)
    trainer = L.Trainer(
        max_epochs=2, accelerator="cpu", logger=False, enable_progress_bar=False, enable_model_summary=False,
        default_root_dir=folder, callbacks=[tuning], **settings,
    )  # fmt: skip
    module = Module(form)
    trainer.fit(module, DataLoader(samples(COUNTS, 0), 25, shuffle=True), DataLoader(samples([30, 30, 30], 1), 20))
    return trainer, module


@pytest.mark.parametrize("form", ["mapping", "named"])
def test_the_policy_is_that_of_the_last_epoch_s_scores(tmp_path, form):
    tuning = CAPTuning("worst", classes=NAMES, class_counts=COUNTS, save_scores=tmp_path / "scores")
    trainer, module = train(tmp_path, tuning, form)
    x, y = samples([30, 30, 30], 1).tensors
    logits, names = module.net(x).detach().numpy(), np.array(NAMES)
    expected = LogitAdjuster("worst", classes=NAMES, bootstrap=0).fit(logits, names[y], class_counts=COUNTS)
    np.testing.assert_allclose(tuning.policy_.strategy.l, expected.policy_.strategy.l, atol=1e-6)
    decided = expected.predict(logits)
    assert float(trainer.callback_metrics["capri/tuned_worst"]) == pytest.approx(
        evaluate(names[y], decided, names, ["worst"])["worst"]
    )
    with np.load(tmp_path / "scores" / "validation_scores.npz") as kept:
        np.testing.assert_allclose(kept["logits"], logits, atol=1e-6)
        assert kept["class_names"].tolist() == NAMES


def test_the_policy_travels_with_the_checkpoint(tmp_path):
    tuning = CAPTuning("balanced", classes=NAMES)
    keeping = L.pytorch.callbacks.ModelCheckpoint(tmp_path, "best", monitor="capri/tuned_balanced")
    torch.manual_seed(0)
    trainer = L.Trainer(
        max_epochs=2, accelerator="cpu", logger=False, enable_progress_bar=False, enable_model_summary=False,
        callbacks=[tuning, keeping],
    )  # fmt: skip
    trainer.fit(Module(), DataLoader(samples(COUNTS, 0), 25), DataLoader(samples([30, 30, 30], 1), 20))
    policy = CAPTuning.policy_of(keeping.best_model_path)
    assert isinstance(policy, Policy)
    assert policy.classes == tuple(NAMES)
    again = CAPTuning("balanced", classes=NAMES)
    L.Trainer(
        max_epochs=2, accelerator="cpu", logger=False, enable_progress_bar=False, callbacks=[again],
        enable_checkpointing=False,
    ).fit(
        Module(), DataLoader(samples(COUNTS, 0), 25), DataLoader(samples([30, 30, 30], 1), 20),
        ckpt_path=keeping.best_model_path,
    )  # fmt: skip
    assert again.policy_ is not None


def test_other_modules_need_to_be_told(tmp_path):
    with pytest.raises(InputError, match="find=function"):
        train(tmp_path, CAPTuning(), "bare")
    tuning = CAPTuning(find=lambda outputs, batch: (outputs, batch[1]))
    train(tmp_path, tuning, "bare")
    assert tuning.policy_ is not None


def test_an_epoch_that_cannot_be_tuned_does_not_end_the_training(tmp_path):
    tuning = CAPTuning("err[lynx]", classes=NAMES)
    with pytest.warns(InputWarning, match="capri could not tune"):
        trainer, _ = train(tmp_path, tuning)
    assert tuning.policy_ is None
    assert "capri/balanced" in trainer.callback_metrics


def test_settings_that_are_not_its_own_are_refused():
    with pytest.raises(InputError, match="CAPTuning takes no reject"):
        CAPTuning("worst", reject=0.1)
    with pytest.raises(InputError, match="unknown objective"):
        CAPTuning("nonsense")


def test_a_checkpoint_without_a_policy_says_so(tmp_path):
    torch.save({}, tmp_path / "bare.ckpt")
    with pytest.raises(InputError, match="holds no policy"):
        CAPTuning.policy_of(tmp_path / "bare.ckpt")


def test_two_processes_tune_as_one(tmp_path):
    tuning = CAPTuning("worst", class_counts=COUNTS, save_scores=tmp_path)
    train(tmp_path, tuning, devices=2, strategy="ddp_fork")
    with np.load(tmp_path / "validation_scores.npz") as kept:
        assert kept["logits"].shape == (90, 3)
        assert np.bincount(kept["y"]).tolist() == [30, 30, 30]


def test_classes_that_do_not_fit_the_scores_are_refused():
    validation = Validation.of(np.eye(3), np.arange(3), CAPTuning(classes=["a", "b"]).known)
    with pytest.raises(InputError, match="classes has 2 entries; the model gives 3 scores"):
        validation.figures(["balanced"])
