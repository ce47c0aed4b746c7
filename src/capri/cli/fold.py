"""`capri fold`: a policy into the last layer of a model, so that serving costs nothing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from capri._checks import InputError
from capri.cli import display, options
from capri.cli.tables import check_output, check_stdin, encode, opened, title, write_bytes
from capri.tables import Table

KINDS = (".safetensors", ".npz")
EXAMPLES = """
**Examples**

    capri fold model.safetensors policy.json --weight-key fc.weight --bias-key fc.bias -o folded.safetensors

    capri fold head.npz policy.json --softmax -o folded.npz

All other arrays are copied as they are. Number types are kept. The new file says that it holds a policy, and is not
folded again.
"""


def fold(
    layer: Annotated[
        Path,
        typer.Argument(metavar="LAYER", show_default=False, help="Weights of the model: .safetensors or .npz."),
    ],
    policy: options.PolicyFile,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", show_default=False, help="Where to write the new weights.")
    ],
    weight_key: Annotated[str, typer.Option(metavar="KEY", help="Key of the last layer's weight, (K, n).")] = "weight",
    bias_key: Annotated[str, typer.Option(metavar="KEY", help="Key of its bias, (K,).")] = "bias",
    softmax: Annotated[
        bool, typer.Option("--softmax", help="The policy was tuned on probabilities that are this layer's softmax.")
    ] = False,
) -> None:
    """Put a policy's offsets and multipliers into a linear layer: o = W x + b becomes Δ∘(W x + b) − l."""
    from capri.posthoc.folding import MARK, already_folded, narrowed
    from capri.posthoc.folding import fold as fold_layer

    check_output(output, KINDS, layer, policy)
    check_stdin({"LAYER": layer, "POLICY": policy})
    archive, rule, where = opened(layer), options.read_policy(policy), title(layer)
    if isinstance(archive, Table):
        raise InputError(f"{where}: holds columns, not a layer; use {' or '.join(KINDS)}.")
    if MARK in archive.notes or MARK in archive.names:
        raise already_folded(where)
    for option, key in (("--weight-key", weight_key), ("--bias-key", bias_key)):
        _check_key(key, option, archive.names, where)
    arrays = {name: archive.get(name) for name in archive.names}
    pair = (arrays[weight_key], arrays[bias_key])
    for key, old, new in zip((weight_key, bias_key), pair, fold_layer(pair, rule, softmax=softmax), strict=True):
        arrays[key] = narrowed(new, old.dtype)
    if output.suffix.lower() == ".npz":  # which has no place for notes
        arrays[MARK] = np.array(rule.digest)
    write_bytes(output, encode(output, arrays, archive.notes | {MARK: rule.digest}))
    display.tell(f"The policy is part of {weight_key} and {bias_key} now: {output}")


def _check_key(key: str, option: str, names: Sequence[str], where: str) -> None:
    if key not in names:
        raise InputError(f"{where}: {option} is {key!r}, which is not in the file; it holds {', '.join(names)}.")
