"""What a run leaves behind each epoch: metrics, class errors, a checkpoint, a line to read; and the time left."""

from __future__ import annotations

import csv
import io
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import lightning as L
import numpy as np
import torch
from lightning.pytorch.callbacks import Callback, Checkpoint
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from capri._files import write_atomically
from capri.train.checkpoints import of_every_process, random_state, restore_random_state
from capri.train.config import LAST
from capri.train.module import Classifier


def write_csv(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Rows of the same columns; floats in full, so that a file read back is the numbers."""
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_atomically(path, text.getvalue().encode())


class Recorder(Checkpoint):
    """History, files and checkpoint at the end of each epoch.

    The history travels in the checkpoint and the files are written from it, so that a resumed run ends with the files
    of an undisturbed one. It is a `Checkpoint` so that Lightning calls it after everything else of the epoch.
    """

    def __init__(self, folder: Path, generator: torch.Generator):
        self.folder, self.generator = folder, generator
        self.rows: list[dict[str, float]] = []
        self.class_errors: list[list[float]] = []
        self.seconds_before = 0.0
        self._restored: list[dict[str, Any]] | None = None
        self._start = time.monotonic()

    @property
    def path(self) -> Path:
        """The checkpoint to resume from."""
        return self.folder / LAST

    @property
    def seconds(self) -> float:
        """Wall time of the training so far, over all resumptions."""
        return self.seconds_before + time.monotonic() - self._start

    def state_dict(self) -> dict[str, Any]:
        """What the checkpoint keeps, random states by process."""
        return {
            "rows": self.rows,
            "class_errors": self.class_errors,
            "seconds": self.seconds,
            "random": of_every_process(random_state(self.generator)),
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take the history back; random states wait until training starts."""
        self.rows, self.class_errors = list(state_dict["rows"]), list(state_dict["class_errors"])
        self.seconds_before, self._restored = state_dict["seconds"], state_dict["random"]

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Whatever start-up drew from the generators is undone here; each process has a random state of its own.

        The data's generator stays common to all: order and augmentation are drawn for the joined batch.
        """
        self._start = time.monotonic()
        rank = trainer.global_rank
        if self._restored is not None:
            restore_random_state(self._restored[rank], self.generator)
            self._restored = None
        elif rank > 0:
            torch.manual_seed(int(np.random.SeedSequence((torch.initial_seed(), rank)).generate_state(1)[0]))

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Note the epoch, write the files, then the checkpoint, then say so."""
        assert isinstance(pl_module, Classifier)
        before = self.rows[-1]["seconds"] if self.rows else 0.0
        row = {"epoch": trainer.current_epoch + 1} | pl_module.record
        row |= {"lr": trainer.optimizers[0].param_groups[0]["lr"], "seconds": round(self.seconds, 3)}
        self.rows.append(row)
        self.class_errors.append(pl_module.class_errors)
        if trainer.is_global_zero:
            self._write(pl_module)
        for logger in trainer.loggers:
            logger.log_metrics({k: v for k, v in row.items() if k != "epoch"}, step=trainer.current_epoch + 1)
        trainer.save_checkpoint(self.path)
        if trainer.is_global_zero:
            print(epoch_line(row, int(trainer.max_epochs or 0), row["seconds"] - before), flush=True)

    def _write(self, module: Classifier) -> None:
        write_csv(self.folder / "metrics.csv", self.rows)
        names = module.class_names or [str(k) for k in range(len(module.train_counts))]
        write_csv(
            self.folder / "class_errors.csv",
            [{"epoch": i + 1} | dict(zip(names, errors, strict=True)) for i, errors in enumerate(self.class_errors)],
        )


def epoch_line(row: Mapping[str, float], max_epochs: int, seconds: float) -> str:
    """One epoch in one line."""
    epoch = int(row["epoch"])
    return (
        f"epoch {epoch:>3}/{max_epochs}  loss {row['train_loss']:.4f}  val loss {row['val_loss']:.4f}  "
        f"error {100 * row['val_plain']:.1f} %  balanced {100 * row['val_balanced']:.1f} %  "
        f"worst {100 * row['val_worst']:.1f} %  lr {row['lr']:.2g}  {seconds:.1f} s  "
        f"left {_duration(seconds * (max_epochs - epoch))}"
    )


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}"


class RunProgress(Callback):
    """One bar for the whole run, with the time left; for terminals."""

    def __init__(self) -> None:
        columns = [TextColumn("training"), BarColumn(), MofNCompleteColumn(), TextColumn("steps")]
        self.progress = Progress(*columns, TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn())

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Show the bar, from where the run stands."""
        self.progress.start()
        total = int(trainer.estimated_stepping_batches)
        self.task = self.progress.add_task("training", total=total, completed=trainer.global_step)

    def on_train_batch_end(self, *_: Any) -> None:
        """One step."""
        self.progress.advance(self.task)

    def on_train_end(self, *_: Any) -> None:
        """Leave the terminal as it was."""
        self.progress.stop()

    def on_exception(self, *_: Any) -> None:
        """Leave the terminal as it was."""
        self.progress.stop()
