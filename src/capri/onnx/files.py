"""ONNX files: data of strangers, read without following them anywhere."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath, PureWindowsPath

import onnx
from google.protobuf.message import DecodeError

from capri._checks import InputError
from capri._files import open_regular

LIMIT = 2**31  # bytes that the format allows


def load(path: str | Path) -> onnx.ModelProto:
    """A model from its file, checked. Weights that lie in files beside it stay there, unread.

    Parameters
    ----------
    path : str or Path
        A regular file.

    Returns
    -------
    onnx.ModelProto

    Raises
    ------
    InputError
        Where the file is missing, damaged or no model, or its weights lie outside its folder.
    """
    try:
        with open_regular(path) as stream:
            if os.fstat(stream.fileno()).st_size > LIMIT:
                raise InputError(f"{path}: is larger than the 2 GiB that an ONNX file may have.")
            content = stream.read(LIMIT)
    except FileNotFoundError:
        raise InputError(f"{path}: no such file; check the path.") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}).") from None
    try:
        model = onnx.ModelProto.FromString(content)
    except (DecodeError, ValueError, RecursionError) as error:
        raise InputError(f"{path}: no ONNX model, or damaged ({error}); export it again.") from None
    for place in sorted(set(external_places(model))):
        if not _inside(place):
            raise InputError(
                f"{path}: has weights in {place!r}, outside its folder, which is refused; export it again."
            )
    check(model, str(path))
    return model


def check(model: onnx.ModelProto, source: str) -> None:
    """Refuse what is no valid model. Of weights in files of their own nothing is looked at."""
    try:
        onnx.checker.check_model(_without_places(model))
    except (onnx.checker.ValidationError, ValueError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise InputError(f"{source}: is no valid ONNX model ({reason}); export it again.") from None


def external_places(model: onnx.ModelProto) -> Iterator[str]:
    """The files that weights lie in."""
    for tensor in _tensors(model):
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            yield next((entry.value for entry in tensor.external_data if entry.key == "location"), "")


def _inside(place: str) -> bool:
    """Is this a path that stays in its folder, on any system?"""
    kinds = PurePosixPath(place), PureWindowsPath(place)
    return place != "" and not any(path.anchor or ".." in path.parts for path in kinds)


def _without_places(model: onnx.ModelProto) -> onnx.ModelProto:
    """The same with empty weights in place of those in other files, which the checker would look for."""
    if not any(True for _ in external_places(model)):
        return model
    alone = onnx.ModelProto()
    alone.CopyFrom(model)
    for tensor in _tensors(alone):
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            number, name = tensor.data_type, tensor.name
            tensor.Clear()
            tensor.data_type, tensor.name = number, name
            tensor.dims.append(0)
    return alone


def _tensors(model: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    """All tensors of a model, in graphs inside graphs as well."""
    graphs = [model.graph]
    nodes = [node for function in model.functions for node in function.node]
    while graphs or nodes:
        while graphs:
            graph = graphs.pop()
            yield from graph.initializer
            for sparse in graph.sparse_initializer:
                yield from (sparse.values, sparse.indices)
            nodes += graph.node
        for node in nodes:
            for attribute in node.attribute:
                yield from (tensor for tensor in (attribute.t, *attribute.tensors) if tensor.ByteSize())
                graphs += [graph for graph in (attribute.g, *attribute.graphs) if graph.ByteSize()]
        nodes = []
