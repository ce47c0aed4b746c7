"""What is made on first use: names of a package load their module, so that importing it stays cheap, and objects keep
what they have computed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, Generic, TypeVar

T = TypeVar("T")


def on_first_use(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """The `__getattr__` of a package whose names live in these of its modules."""

    def find(name: str) -> Any:
        if name in homes:
            return getattr(import_module(f"{package}.{homes[name]}"), name)
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return find


class once(Generic[T]):
    """A property that is computed once for each object.

    It holds no lock, unlike that of Python 3.11's functools: there a process that another thread forks in the meantime
    would wait for it forever, and threads at work on objects of their own for each other.
    """

    def __init__(self, compute: Callable[[Any], T]) -> None:
        self._compute, self._name, self.__doc__ = compute, compute.__name__, compute.__doc__

    def __get__(self, instance: Any, owner: type | None = None) -> T:
        if instance is None:  # asked of the class, by tools that read docstrings
            return self  # type: ignore[return-value]
        value = instance.__dict__[self._name] = self._compute(instance)  # found there from now on
        return value
