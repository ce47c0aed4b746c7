"""`capri apply`: scores and a policy in, decisions out."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from numpy.typing import NDArray

from capri._checks import InputError
from capri.classes import Classes
from capri.cli import display, options
from capri.cli.inputs import Source, Stream, read_stream
from capri.cli.messages import spoken_warnings
from capri.cli.progress import progress
from capri.cli.tables import check_output, check_stdin, matrix_writer, write_column, writing
from capri.policy import Policy

EXAMPLES = """
**Examples**

    capri apply test.npz policy.json -o predictions.csv

    capri apply test.parquet policy.json --adjusted adjusted.npz -o predictions.parquet

    capri apply test.npy policy.json > predictions.csv

    capri apply scores/ policy.json -o predictions.parquet

A policy that may leave samples undecided gives an empty prediction for them (null with `--json`).

Scores are read in blocks of rows, so files may be larger than memory (arrays in .npz and .safetensors are read whole);
of a folder, all .parquet files are read. Whether the scores are logits or probabilities is known from the policy.
Columns with class names are put in the policy's order; columns without are taken to be in it.
"""


def apply(
    scores: options.ScoresFile,
    policy: options.PolicyFile,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            rich_help_panel=options.OUTPUT,
            help="Predicted classes: .csv, .parquet or .npz; as CSV on stdout if not given.",
        ),
    ] = None,
    adjusted: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", rich_help_panel=options.OUTPUT, help="Adjusted scores too: .npz, .npy or .safetensors."
        ),
    ] = None,
    scores_key: options.ScoresKey = None,
    label_key: options.LabelKey = None,
    class_names: options.ClassNames = None,
    as_json: options.Json = False,
) -> None:
    """Decide by a policy: the predicted class of every sample."""
    if output is not None:
        check_output(output, [".csv", ".parquet", ".npz"], scores, policy, class_names)
    if adjusted is not None:
        check_output(adjusted, [".npz", ".npy", ".safetensors"], scores, policy, class_names, output)
    check_stdin({"SCORES": scores, "POLICY": policy})
    with spoken_warnings():
        rule = options.read_policy(policy)
        source = Source(scores, scores_key, label_key, class_names=class_names, policy_classes=Classes.of(rule.classes))
        stream = read_stream(replace(source, with_labels=False)).ordered_as(Classes.of(rule.classes))
        names, labels = np.asarray(stream.classes.names), stream.classes.labels
        if labels.dtype == object or rule.thresholds is not None:
            labels = names  # files of columns cannot mix types
        if rule.thresholds is not None:
            labels = with_none(labels)
        with _adjusted(adjusted, stream, names) as write:
            before, after = _decide(stream, rule, write)
            if output is not None:
                with writing(output) as file:
                    write_column(file, output.suffix.lower(), "prediction", labels, after)
    open_, changed = int((after < 0).sum()), int(((before != after) & (after >= 0)).sum())
    if as_json:
        summary = {"n_samples": len(after), "changed": changed, "undecided": open_, "output": output and str(output)}
        known = stream.classes.labels.tolist()
        decisions = [None if k < 0 else known[k] for k in after.tolist()]
        display.print_json(summary | ({} if output else {"predictions": decisions}))
    elif output is None:
        sys.stdout.flush()
        write_column(sys.stdout.buffer, ".csv", "prediction", labels, after)
        sys.stdout.buffer.flush()
    else:
        left = f", {open_:,} left undecided (empty)" if rule.thresholds is not None else ""
        display.tell(f"{len(after):,} predictions, {changed:,} of them changed by the policy{left}: {output}")


def with_none(names: NDArray[np.str_]) -> NDArray[np.str_]:
    """The names, and at the end, where −1 points, that of no class: empty."""
    if "" in names.tolist():
        raise InputError("a class has an empty name, which stands for undecided samples here; name the classes.")
    return np.append(names, "")


def _decide(
    stream: Stream, rule: Policy, write: Callable[[NDArray[np.float64]], None] | None
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """The columns decided on before and after, (n_samples,) each, in one pass; adjusted scores are written too."""
    before, after = list[NDArray[np.int32]](), list[NDArray[np.int32]]()
    with progress("deciding", stream.blocks.n_samples) as advance:
        for block in stream.blocks:
            values = rule.adjust(block)
            before.append(block.scores.argmax(axis=1).astype(np.int32))
            after.append(rule.columns(values).astype(np.int32))
            if write is not None:
                write(values)
            advance(len(values))
    return np.concatenate(before), np.concatenate(after)


@contextmanager
def _adjusted(
    path: Path | None, stream: Stream, names: NDArray[np.str_]
) -> Iterator[Callable[[NDArray[np.float64]], None] | None]:
    """What writes adjusted scores, where they are wanted; the file is there once all is done."""
    if path is None:
        yield None
        return
    with matrix_writer(path, (stream.blocks.count(), stream.n_classes), names) as write:
        yield write
