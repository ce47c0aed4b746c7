"""What a run leaves behind at its end: logits for tuning, weights, the per-class table, curves, provenance."""

from __future__ import annotations

import hashlib
import importlib.metadata
import io
import json
import platform
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from capri._checks import InputError
from capri._files import write_atomically
from capri._provenance import commit, file_digest
from capri.attributes import norm
from capri.data.batches import Batch
from capri.data.splits import Part, Splits
from capri.errors import Absent, class_errors, predict
from capri.evaluation import evaluate
from capri.train.module import objectives_for
from capri.train.recorder import write_csv

PACKAGES = ("capriors", "torch", "lightning", "numpy")


@torch.no_grad()
def predict_logits(model: nn.Module, batches: Iterable[Batch]) -> NDArray[np.float16]:
    """Logits (n, K) in half precision: what is stored, and what figures are computed from."""
    device = next(model.parameters()).device
    was_training = model.training
    model.eval()
    logits = [model(x.to(device)).float().cpu() for x, _ in batches]
    model.train(was_training)
    largest = torch.finfo(torch.float16).max
    return torch.cat(logits).clamp(-largest, largest).numpy().astype(np.float16)


@torch.no_grad()
def features(model: nn.Module, batches: Iterable[Batch]) -> tuple[Tensor, Tensor]:
    """What the last layer sees, (n, D), and the classes, (n,)."""
    device = next(model.parameters()).device
    was_training = model.training
    model.eval()
    encode: Any = model.features
    found = [(encode(x.to(device)).float().cpu(), y) for x, y in batches]
    model.train(was_training)
    x, y = zip(*found, strict=True)
    return torch.cat(x), torch.cat(y)


def last_layer_norms(model: nn.Module) -> NDArray[np.float64]:
    """‖w_k‖ of the last layer, (K,): the attribute `norm`."""
    return norm(model.get_parameter("fc.weight").detach().float().cpu().numpy())


def objectives(part: Part, logits: NDArray[np.float16], splits: Splits, absent: Absent = "error") -> dict[str, float]:
    """The core's objectives of stored logits."""
    return evaluate(
        part.y,
        predict(logits),
        splits.n_classes,
        objectives_for(splits.train_counts[np.unique(part.y)]),
        absent=absent,
        class_names=splits.class_names,
        class_counts=splits.train_counts,
    )


def write_logits(
    path: Path,
    splits: Splits,
    val: NDArray[np.float16],
    test: NDArray[np.float16],
    norms: NDArray[np.float64],
    card: Any,
) -> None:
    """logits.npz, ready for post-hoc tuning. val_index, test_index: positions in the official order of their file."""
    arrays: dict[str, Any] = {
        "val_logits": val,
        "val_y": splits.val.y,
        "val_index": splits.val.index,
        "test_logits": test,
        "test_y": splits.test.y,
        "test_index": splits.test.index,
        "class_names": np.array(splits.class_names),
        "train_counts": splits.train_counts,
        "last_layer_norms": norms,
        "card": np.array(json.dumps(card, ensure_ascii=False)),
    }
    if splits.noise is not None:
        arrays["noise"] = splits.noise
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)
    write_atomically(path, buffer.getvalue())


def write_class_table(
    path: Path, splits: Splits, val: NDArray[np.float16], test: NDArray[np.float16], norms: NDArray[np.float64]
) -> None:
    """One row per class: name, training samples, errors on validation and test, norm of its last-layer weights."""
    k = splits.n_classes
    errors = {
        name: class_errors(part.y, predict(logits), k)
        for name, part, logits in (("val", splits.val, val), ("test", splits.test, test))
    }
    columns = zip(splits.class_names, splits.train_counts.tolist(), errors["val"], errors["test"], norms, strict=True)
    names = ("class", "train_count", "val_error", "test_error", "last_layer_norm")
    write_csv(path, [dict(zip(names, (name, n, *map(float, rest)), strict=True)) for name, n, *rest in columns])


def write_model(path: Path, model: nn.Module) -> None:
    """The network's weights."""
    state = {name: tensor.detach().cpu().contiguous() for name, tensor in model.state_dict().items()}
    write_atomically(path, safetensors.torch.save(state))


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Indented JSON."""
    write_atomically(path, (json.dumps(content, indent=1, ensure_ascii=False) + "\n").encode())


def write_summary(path: Path, summary: Mapping[str, Any], *files: str) -> None:
    """Indented JSON with digests of itself and of files beside it, which `read_summary` checks."""
    whole = {**summary, "files": {name: file_digest(path.parent / name) for name in files}}
    write_json(path, {**whole, "sha256": _digest(whole)})


def read_summary(path: Path) -> dict[str, Any]:
    """The summary of a run that has ended; it and the files that it answers for must be as the run left them."""
    try:
        summary: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        intact = summary.pop("sha256") == _digest(summary)
    except (OSError, ValueError, KeyError, AttributeError) as error:
        raise InputError(f"{path} is not the summary of a run ({type(error).__name__}: {error}).") from None
    if not intact:
        raise InputError(f"{path} was changed: its sha256 is not that of its content; do the run again.")
    for name, digest in summary["files"].items():
        if file_digest(path.parent / name) != digest:
            raise InputError(f"{path.parent / name} was changed since the run ended; do the run again.")
    return summary


def _digest(summary: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(summary, ensure_ascii=False).encode()).hexdigest()


def provenance() -> dict[str, Any]:
    """Versions, commit and threads: what else decides the bits."""
    versions = {}
    for package in PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            versions[package] = "unknown"
    return {
        "versions": {"python": platform.python_version(), **versions},
        "commit": commit(),
        "threads": torch.get_num_threads(),
        "machine": platform.machine(),
    }


def plot_curves(rows: Sequence[Mapping[str, float]], path: Path, title: str) -> None:
    """Learning curves: losses, validation errors, learning rate."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    epochs = [row["epoch"] for row in rows]
    figure = Figure(figsize=(11, 3.4), layout="constrained")
    losses, errors, rate = figure.subplots(1, 3, width_ratios=(1, 1.3, 0.8))
    for name, label in (("train_loss", "training"), ("val_loss", "validation")):
        losses.plot(epochs, [row[name] for row in rows], label=label)
    losses.set(title="loss", xlabel="epoch", yscale="log")
    for name, label in (
        ("balanced", "balanced"),
        ("plain", "plain"),
        ("worst", "worst class"),
        ("sdev", "spread (sdev)"),
    ):
        errors.plot(epochs, [100 * row[f"val_{name}"] for row in rows], label=label)
    errors.set(title="validation error (%)", xlabel="epoch", ylim=(0, 102))
    rate.plot(epochs, [row["lr"] for row in rows], color="0.4")
    rate.set(title="learning rate", xlabel="epoch")
    for axes in (losses, errors, rate):
        axes.grid(alpha=0.25)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.spines[["top", "right"]].set_visible(False)
    losses.legend(frameon=False)
    errors.legend(frameon=False, ncols=2)
    figure.suptitle(title, fontsize=11)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=120)
    write_atomically(path, buffer.getvalue())
