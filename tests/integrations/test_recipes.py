"""docs/recipes.md does what it says: its blocks run, in their order, in an empty folder."""

import re
import warnings
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("lightning")
import lightning
import torch
from torch.utils.data import DataLoader, TensorDataset

from capri import Policy, Strategy

PAGE = (Path(__file__).parents[2] / "docs" / "recipes.md").read_text(encoding="utf-8")
SECTIONS = {
    title: re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    for title, text in re.findall(r"^## ([^\n]+)\n(.*?)(?=^## |\Z)", PAGE, re.DOTALL | re.MULTILINE)
}
COUNTS, NAMES = [60, 20, 10], ["common", "rare", "rarer"]


def samples(counts, seed):
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.repeat(np.arange(3), counts))
    return (rng.normal(size=(len(y), 4)) + 2 * np.eye(3, 4)[y]).astype(np.float32), y


class Words(torch.utils.data.Dataset):
    """Four tokens for each sample, cut from its features."""

    def __init__(self, counts, seed):
        x, self.y = samples(counts, seed)
        self.tokens = np.clip(4 + 2 * x, 0, 9).astype(int)

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        return {"input_ids": torch.tensor(self.tokens[i]), "labels": torch.tensor(self.y[i])}


def loader(counts, seed):
    return DataLoader(TensorDataset(*map(torch.tensor, samples(counts, seed))), 16)


def run(blocks, **names):
    """The blocks, with these names and what the page has imported by then."""
    from capri.bilevel import ParametricCrossEntropy

    space = {"torch": torch, "Strategy": Strategy, "ParametricCrossEntropy": ParametricCrossEntropy}
    space |= {"NAMES": NAMES, "COUNTS": COUNTS, "L": lightning} | names
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for block in blocks:
            exec(compile(block, "docs/recipes.md", "exec"), space)
    return space


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)


def test_hugging_face():
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    config = transformers.BertConfig(vocab_size=10, max_position_embeddings=4, num_labels=3, **sizes)
    names = run(
        SECTIONS["Hugging Face's Trainer"],
        model=transformers.BertForSequenceClassification(config),
        train_dataset=Words(COUNTS, 0),
        eval_dataset=Words([10, 10, 10], 1),
    )
    assert set(names["labels"]) <= set(NAMES)
    log = [entry for entry in names["trainer"].state.log_history if "eval_tuned_cvar_0.2" in entry]
    assert log


def test_lightning():
    names = run(SECTIONS["Lightning"], train_loader=loader(COUNTS, 0), val_loader=loader([10, 10, 10], 1))
    assert names["policy"].classes == tuple(NAMES)


def test_skorch():
    pytest.importorskip("skorch")
    X, y = samples(COUNTS, 0)
    assert set(run(SECTIONS["skorch"], X=X, y=y)["tuned"].predict(X)) <= {0, 1, 2}


def test_timm():
    assert run(SECTIONS["timm"])["loss"].ndim == 0


def test_mlflow(monkeypatch):
    pytest.importorskip("mlflow", reason="mlflow is not installed; make mlflow-test does")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "file:mlruns")
    model, use = SECTIONS["MLflow"]
    Path("policy_model.py").write_text(model)
    policy = Policy(Strategy.logit_adjustment(COUNTS), "balanced", tuple(NAMES))
    policy.save("policy.json")
    scores = np.random.default_rng(0).normal(size=(50, 3))
    served = run([use], scores=scores)["labels"]
    assert served.tolist() == policy.predict(scores).tolist()
    assert not [p for p in Path("served").rglob("*") if p.suffix in (".pkl", ".pickle")]
