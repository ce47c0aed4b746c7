"""`capri apply`: scores and a policy in, decisions out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

from capri.classes import Classes
from capri.cli import display, options
from capri.cli.inputs import Source, read_samples
from capri.cli.messages import spoken_warnings
from capri.cli.tables import check_output, check_stdin, encode, write_bytes

EXAMPLES = """
**Examples**

    capri apply test.npz policy.json -o predictions.csv

    capri apply test.parquet policy.json --adjusted adjusted.npz -o predictions.parquet

    capri apply test.npy policy.json > predictions.csv

Whether the scores are logits or probabilities is known from the policy. Columns with class names are put in the
policy's order; columns without are taken to be in it.
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
        classes = Classes.of(rule.classes)
        source = Source(scores, scores_key, label_key, class_names=class_names, policy_classes=classes)
        samples = read_samples(replace(source, with_labels=False)).ordered_as(classes)
        values = rule.apply(samples.scores)
    names, labels = np.asarray(samples.classes.names), samples.classes.labels
    labels = names if labels.dtype == object else labels  # files of columns cannot mix types
    predictions = labels[values.argmax(axis=1)]
    contents = _encoded(output, predictions, adjusted, values, names)
    for path, content in contents.items():
        if path is not None:
            write_bytes(path, content)
    changed = int((values.argmax(axis=1) != samples.scores.argmax(axis=1)).sum())
    if as_json:
        summary = {"n_samples": len(predictions), "changed": changed, "output": output and str(output)}
        display.print_json(summary | ({} if output else {"predictions": predictions}))
    elif output is None:
        display.print_bytes(contents[None])
    else:
        display.tell(f"{len(predictions):,} predictions, {changed:,} of them changed by the policy: {output}")


def _encoded(
    output: Path | None,
    predictions: NDArray[Any],
    adjusted: Path | None,
    values: NDArray[np.float64],
    names: NDArray[np.str_],
) -> dict[Path | None, bytes]:
    """The content of each file, all of it before any is written: a failure leaves no file behind."""
    contents = {output: encode(output or Path("-.csv"), {"prediction": predictions})}
    if adjusted is not None:
        named = {} if adjusted.suffix.lower() == ".safetensors" else {"class_names": names}
        contents[adjusted] = encode(adjusted, {"scores": values, **named})
    return contents
