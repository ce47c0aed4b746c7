"""Runs that note their gradients: by itself in this process, as a script in as many as the settings ask for.

    python runs.py out section.name=value …

makes three runs below out: plain; noisy; and stopped, which is noisy, stopped after an epoch and resumed.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch

import capri.data.modules
import capri.train.runner
from capri.train.config import Config, resolve
from capri.train.module import Classifier
from capri.train.recorder import Recorder
from capri.train.runner import run

NOISY = ["model.dropout=0.5", "trainer.mixup=0.4", "trainer.batch_size=10"]  # 50 samples: all shares alike


def run_and_note_gradients(config: Config) -> None:
    """The run, and gradients.pt: of each step, as the optimizer sees them."""
    steps: list[dict[str, torch.Tensor]] = []

    class Noting(Classifier):
        def on_before_optimizer_step(self, optimizer: torch.optim.Optimizer) -> None:
            steps.append({name: p.grad.clone() for name, p in self.model.named_parameters() if p.grad is not None})

    capri.train.runner.Classifier = Noting  # type: ignore[misc]
    try:
        if run(config):
            torch.save(steps, Path(config.out) / "gradients.pt")
    finally:
        capri.train.runner.Classifier = Classifier  # type: ignore[misc]


def stop_after_an_epoch(config: Config) -> None:
    """The first epoch of a run, up to its checkpoint."""
    whole_epoch = Recorder.on_train_epoch_end

    def stop(recorder, trainer, module):
        whole_epoch(recorder, trainer, module)
        trainer.should_stop = True

    Recorder.on_train_epoch_end = stop  # type: ignore[method-assign]
    try:
        run(config)
    finally:
        Recorder.on_train_epoch_end = whole_epoch  # type: ignore[method-assign]


if __name__ == "__main__":
    out, *assignments = sys.argv[1:]
    torch.set_num_threads(1)
    capri.data.modules.EVALUATION_BATCH = 10  # several batches: sums must hold over them
    run_and_note_gradients(resolve(out=f"{out}/plain", preset="features", assignments=assignments))
    run(resolve(out=f"{out}/noisy", preset="features", assignments=[*assignments, *NOISY]))
    stopped = resolve(out=f"{out}/stopped", preset="features", assignments=[*assignments, *NOISY])
    stop_after_an_epoch(stopped)
    run(stopped, resume=True)
