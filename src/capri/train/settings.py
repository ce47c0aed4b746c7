"""Settings as typed dataclasses, TOML and the command line: one set of names, unknown ones rejected.

Nothing here knows of training: sections and options are whatever the dataclasses declare.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, field, fields, is_dataclass
from difflib import get_close_matches
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from capri._checks import InputError

T = TypeVar("T")


def option(default: Any, help: str) -> Any:
    """A field with a default and a line that explains it."""
    return field(default=default, metadata={"help": help})


def build(cls: type[T], values: Mapping[str, Any], path: str = "") -> T:
    """A dataclass from nested mappings; names and types are checked, what is absent keeps its default."""
    hints = get_type_hints(cls)
    known = [f.name for f in fields(cls)]  # type: ignore[arg-type]  # cls is a dataclass
    arguments = {}
    for name, value in values.items():
        here = f"{path}{name}"
        if name not in known:
            raise InputError(f"unknown setting {here!r}; {_suggest(name, known, path)}")
        kind = hints[name]
        if is_dataclass(kind):
            if not isinstance(value, Mapping):
                raise InputError(f"{here} is {value!r}; it is a section, as in [{here}].")
            arguments[name] = build(kind, value, f"{here}.")  # type: ignore[arg-type]
        else:
            arguments[name] = _checked(value, kind, here)
    return cls(**arguments)


def merge(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Nested mappings, the second over the first."""
    merged = dict(base)
    for name, value in changes.items():
        old = merged.get(name)
        merged[name] = merge(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return merged


def parse_assignments(assignments: Sequence[str]) -> dict[str, Any]:
    """``["trainer.max_epochs=5"]`` as nested mappings; values read as TOML, and as plain text where they are not.

    >>> parse_assignments(["trainer.max_epochs=5", "data.root=my/data"])
    {'trainer': {'max_epochs': 5}, 'data': {'root': 'my/data'}}
    """
    result: dict[str, Any] = {}
    for assignment in assignments:
        name, equals, text = assignment.partition("=")
        if not equals or not name.strip():
            raise InputError(f"--set {assignment!r}: give section.name=value, as in trainer.max_epochs=5.")
        try:
            value = tomllib.loads(f"value = {text}")["value"]
        except tomllib.TOMLDecodeError:
            value = text
        nested: Any = value
        for part in reversed(name.strip().split(".")):
            nested = {part: nested}
        result = merge(result, nested)
    return result


def to_mapping(settings: Any) -> dict[str, Any]:
    """Nested mappings, all settings."""
    values = {f.name: getattr(settings, f.name) for f in fields(settings)}
    return {name: to_mapping(v) if is_dataclass(v) else v for name, v in values.items()}


def to_toml(settings: Any, *, comments: bool = False) -> str:
    """TOML, sections in order; with `comments`, each line says what it means."""
    plain, sections = [], []
    for f in fields(settings):
        value = getattr(settings, f.name)
        if is_dataclass(value):
            sections.append(f"\n[{f.name}]\n{to_toml(value, comments=comments)}")
        else:
            line = f"{f.name} = {_literal(value)}"
            note = f.metadata.get("help", "")
            plain.append(f"{line:<40} # {note}\n" if comments and note else f"{line}\n")
    return "".join(plain + sections).lstrip("\n")


def read_toml(text: str, source: str) -> dict[str, Any]:
    """TOML as nested mappings."""
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise InputError(f"{source} is not TOML: {error}.") from None


def differences(first: Mapping[str, Any], second: Mapping[str, Any], path: str = "") -> list[str]:
    """Names of the settings in which two nested mappings differ."""
    names: list[str] = []
    for name in [*first, *(n for n in second if n not in first)]:
        a, b = first.get(name, MISSING), second.get(name, MISSING)
        if isinstance(a, Mapping) and isinstance(b, Mapping):
            names += differences(a, b, f"{path}{name}.")
        elif a != b:
            names.append(f"{path}{name}")
    return names


def _suggest(name: str, known: Sequence[str], path: str) -> str:
    near = get_close_matches(name, known, n=1, cutoff=0.4)
    return f"did you mean {path + near[0]!r}?" if near else f"known: {', '.join(path + k for k in known)}."


def _checked(value: Any, kind: Any, name: str) -> Any:
    if get_origin(kind) is Literal:
        choices = get_args(kind)
        if value not in choices:
            near = get_close_matches(str(value), map(str, choices), n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise InputError(f"{name} is {value!r}; it must be one of {', '.join(map(repr, choices))}.{hint}")
        return value
    if get_origin(kind) is tuple:
        if not isinstance(value, list | tuple):
            raise InputError(f"{name} is {value!r}; it must be a list, as in [1, 2].")
        return tuple(_checked(v, get_args(kind)[0], f"{name}[{i}]") for i, v in enumerate(value))
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        words = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
        raise InputError(f"{name} is {value!r}; it must be {words[kind]}.")
    return value


def _literal(value: Any) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(map(_literal, value))}]"
    if isinstance(value, str | bool):
        return json.dumps(value, ensure_ascii=False)  # JSON's strings and booleans are TOML's
    return repr(value)
