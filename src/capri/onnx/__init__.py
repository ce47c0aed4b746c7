"""Policies in ONNX (extra `onnx`): behind the scores of a model that is there, and in what skl2onnx converts."""

from __future__ import annotations

from capri.onnx.files import load
from capri.onnx.graph import with_policy
from capri.onnx.sklearn import register_converters

__all__ = ["load", "register_converters", "with_policy"]
