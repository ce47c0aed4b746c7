"""`capri export`: a policy behind the scores of an ONNX model, so that it decides wherever the model runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from capri._checks import InputError
from capri.cli import display, options
from capri.cli.tables import STDIN, check_output, write_bytes

EXAMPLES = """
**Examples**

    capri export model.onnx policy.json -o tuned.onnx

    capri export net.onnx policy.json --softmax --scores-output logits -o tuned.onnx

The new model has the outputs of the old one. Its label is the policy's decision, in place of the model's own if there
is one; the adjusted scores are an output of their own.
"""


def export(
    model: Annotated[
        Path, typer.Argument(metavar="MODEL", show_default=False, help="A model with its scores as an output: .onnx.")
    ],
    policy: options.PolicyFile,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", show_default=False, help="Where to write the new model.")
    ],
    scores_output: Annotated[
        str | None, typer.Option(metavar="NAME", help="The output of the scores, where several could be.")
    ] = None,
    label_output: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The output of the decisions; by default `label`, or the model's own."),
    ] = None,
    softmax: Annotated[
        bool, typer.Option("--softmax", help="The policy was tuned on probabilities that are these scores' softmax.")
    ] = False,
    exact: Annotated[
        bool, typer.Option(help="Compute in float64, as `capri apply` does, or in the model's own number type.")
    ] = True,
) -> None:
    """Put a policy behind the scores of an ONNX model: the label that it gives is the tuned one."""
    from capri.onnx.files import external_places, load
    from capri.onnx.graph import with_policy

    check_output(output, (".onnx",), model, policy)
    if model == STDIN:
        raise InputError("a model is not read from standard input; give its file.")
    rule, trained = options.read_policy(policy), load(model)
    if (places := sorted(set(external_places(trained)))) and output.resolve().parent != model.resolve().parent:
        raise InputError(
            f"{model}: its weights lie in {places[0]!r} beside it, where the new model will look, too; write that into "
            "the same folder."
        )
    new = with_policy(
        trained, rule, scores_output=scores_output, label_output=label_output, softmax=softmax, exact=exact
    )
    write_bytes(output, new.SerializeToString(deterministic=True))
    old = [value.name for value in trained.graph.output]
    changed = [value.name for value in new.graph.output if value not in trained.graph.output]
    kept = [name for name in old if name not in changed]
    display.tell(f"The policy decides in {', '.join(changed)}; {', '.join(kept)} as it was: {output}")
