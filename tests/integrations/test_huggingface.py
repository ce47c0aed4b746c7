"""Hugging Face's Trainer with a tiny network, offline."""

import json

import numpy as np
import pytest

pytest.importorskip("torch")
import torch
from typer.testing import CliRunner

pytest.importorskip("transformers")
from transformers import BertConfig, BertForSequenceClassification, EvalPrediction, Trainer, TrainingArguments

from capri import InputError, Policy, Strategy
from capri._checks import InputWarning
from capri.bilevel import ParametricCrossEntropy
from capri.cli import commands
from capri.integrations import ClassErrorCallback, StrategyLoss

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning:torch", "ignore::FutureWarning", "ignore:.*pin_memory.*")
COUNTS, NAMES = [120, 30, 10], ["common", "rare", "rarer"]


class Words(torch.utils.data.Dataset):
    """Rows of token numbers, of which some say the class."""

    def __init__(self, counts, seed):
        rng = np.random.default_rng(seed)
        self.y = np.repeat(np.arange(len(counts)), counts)
        self.tokens = rng.integers(5, 40, (len(self.y), 8))
        told = rng.random(self.tokens.shape) < 0.2
        self.tokens[told] = (self.y[:, None] + np.zeros(8, int))[told]

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        return {"input_ids": torch.tensor(self.tokens[i]), "labels": torch.tensor(self.y[i])}


def model():
    torch.manual_seed(0)
    sizes = {
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
        "hidden_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 16,
    }
    return BertForSequenceClassification(BertConfig(vocab_size=40, max_position_embeddings=8, num_labels=3, **sizes))


def trainer(folder, loss=None, errors=None, **settings):
    arguments = TrainingArguments(
        output_dir=str(folder), num_train_epochs=1, learning_rate=0.05, optim="sgd", use_cpu=True, report_to="none",
        disable_tqdm=True, seed=0, **{"save_strategy": "no", "per_device_train_batch_size": 20} | settings,
    )  # fmt: skip
    return Trainer(
        model=model(), args=arguments, train_dataset=Words(COUNTS, 0), eval_dataset=Words([40, 40, 40], 1),
        compute_loss_func=loss, compute_metrics=None if errors is None else errors.compute_metrics,
        callbacks=[] if errors is None else [errors],
    )  # fmt: skip


def weights_after(tmp_path, loss, **settings):
    run = trainer(tmp_path, loss, **settings)
    run.train()
    return torch.cat([p.detach().flatten() for p in run.model.parameters()])


def test_the_neutral_strategy_trains_as_the_model_s_own_loss(tmp_path):
    ours, theirs = (weights_after(tmp_path, loss) for loss in (StrategyLoss(Strategy.of(3)), None))
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-4)


def test_accumulated_steps_are_one_large_one(tmp_path):
    loss = StrategyLoss(Strategy.logit_adjustment(COUNTS))
    whole = weights_after(tmp_path, loss)
    parts = weights_after(tmp_path, loss, per_device_train_batch_size=5, gradient_accumulation_steps=4)
    torch.testing.assert_close(parts, whole, atol=1e-6, rtol=1e-4)


def test_the_loss_is_the_parametric_cross_entropy():
    strategy = Strategy.of(3, omega=[1, 2, 3], l=[0, -1, -2], delta=[1, 0.5, 2])
    logits, labels = torch.randn(4, 3), torch.tensor([0, 1, 2, 2])
    expected = ParametricCrossEntropy(strategy)(logits, labels)
    ours = StrategyLoss(strategy)
    torch.testing.assert_close(ours({"logits": logits}, labels), expected)
    torch.testing.assert_close(ours((logits,), labels, num_items_in_batch=8), expected / 2)
    soft = torch.nn.functional.one_hot(labels, 3).float()
    torch.testing.assert_close(ours((logits,), soft, num_items_in_batch=torch.tensor(12)), expected)


def test_what_the_loss_cannot_take_is_refused():
    loss = StrategyLoss(Strategy.of(3))
    with pytest.raises(InputError, match='no "labels"'):
        loss((torch.zeros(2, 3),), None)
    with pytest.raises(InputError, match=r"\(2, 5, 3\), labels \(2, 5\); the loss is for one label per"):
        loss((torch.zeros(2, 5, 3),), torch.zeros(2, 5))
    with pytest.raises(InputError, match="the model gives 4 logits, and the strategy has 3 classes"):
        loss((torch.zeros(2, 4),), torch.zeros(2, dtype=torch.int64))


def test_errors_are_reported_and_checkpoints_hold_scores_and_policy(tmp_path):
    errors = ClassErrorCallback(NAMES, dict(zip(NAMES, COUNTS, strict=True)), tune="cvar:0.4")
    run = trainer(tmp_path, StrategyLoss(Strategy.of(3)), errors, eval_strategy="epoch", save_strategy="epoch")
    run.train()
    figures = run.evaluate()
    assert figures["eval_tuned_cvar_0.4"] <= figures["eval_cvar_0.2"]
    [checkpoint] = tmp_path.glob("checkpoint-*")
    policy = Policy.load(checkpoint / "policy.json")
    assert policy.classes == tuple(NAMES)
    assert policy.objective == "cvar:0.4"
    with np.load(checkpoint / "validation_scores.npz") as scores:
        assert scores["logits"].shape == (120, 3)
        np.testing.assert_array_equal(scores["train_counts"], COUNTS)
    told = ["tune", str(checkpoint / "validation_scores.npz"), "--objective", "balanced", "--json"]
    result = CliRunner().invoke(commands, told)
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["objective"] == "balanced"


def test_evaluations_that_diverged_do_not_end_the_training():
    errors = ClassErrorCallback()
    with pytest.warns(InputWarning, match="capri could not judge this evaluation"):
        assert errors.compute_metrics(EvalPrediction(np.full((3, 3), np.nan, np.float32), np.arange(3))) == {}
    with pytest.raises(InputError, match="unknown objective 'nonsense'"):
        ClassErrorCallback(tune="nonsense")


def test_scores_that_cannot_be_tuned_do_not_end_the_training():
    errors = ClassErrorCallback(tune="err[lynx]")
    with pytest.warns(InputWarning, match="capri could not tune"):
        figures = errors.compute_metrics(EvalPrediction(np.eye(3, dtype=np.float32), np.arange(3)))
    assert figures["balanced"] == 0
