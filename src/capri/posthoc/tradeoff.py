"""`Frontier`: the best that one objective can be for what it costs in another, as data."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from capri._checks import InputError, short
from capri._fields import is_number
from capri._files import read_text, write_atomically
from capri.policy import Policy, PolicyError
from capri.posthoc.adjustment import Vector

SCHEMA = 1
OUT_OF_FOLD, GIVEN = "out of fold", "held-out samples"


@dataclass(frozen=True)
class Point:
    """A place in the plane of two objectives.

    Parameters
    ----------
    value, price : float
        The objective that is lowered and the one it is paid in, on the samples that tuned.
    held_value, held_price : float or None
        The same on samples that did not tune. Out of fold, that of the unadjusted scores less what is gained.
    value_interval, price_interval : (float, float) or None
        Their 90 % intervals, by how sure the difference to the unadjusted scores is.
    """

    value: float
    price: float
    held_value: float | None = None
    held_price: float | None = None
    value_interval: tuple[float, float] | None = None
    price_interval: tuple[float, float] | None = None

    def to_dict(self) -> dict[str, Any]:
        """Its figures in numbers and lists, as JSON has them.

        Returns
        -------
        dict
        """
        return {name: list(v) if isinstance(v, tuple) else v for name, v in vars(self).items()}


@dataclass(frozen=True, eq=False)
class Frontier:
    """The curve of best values of one objective against the price in another, as `frontier` gives it.

    Points go from the lowest price to the lowest value. By what tuning goes by, each is better than the one before and
    dearer; by the labels it is never worse or cheaper. A point is a policy.

    Parameters
    ----------
    of, against : str
        The objective that is lowered, and the one in which that is paid.
    points : tuple of Point
        Figures of each point.
    bounds : tuple of float
        What `against` had to keep to at each point, by what tuning goes by; infinite where it was free.
    policies : tuple of Policy
        The policy of each point.
    landmarks : mapping from names to Point
        Where other answers lie: "unadjusted"; "τ = 1", logit adjustment as it is, where frequencies are known; and
        "chosen", what the adjuster itself chooses.
    held_out : str or None
        Where the held-out figures come from: "out of fold" or "held-out samples"; None where there are none.
    """

    of: str
    against: str
    points: tuple[Point, ...]
    bounds: tuple[float, ...]
    policies: tuple[Policy, ...]
    landmarks: Mapping[str, Point]
    held_out: str | None

    def __len__(self) -> int:
        return len(self.points)

    def __repr__(self) -> str:
        """A table, in %."""
        named = [*self.landmarks.items(), *((f"point {i}", point) for i, point in enumerate(self.points))]
        width = max(len(name) for name, _ in named)
        beside = "" if self.held_out is None else f"   {self.held_out}"
        lines = [f"Frontier of {self.of} against {self.against}, in %: as tuned{beside}"]
        for name, point in named:
            line = f"  {name:<{width}}  {_both(point.value, point.price)}"
            lines.append(line if point.held_value is None else f"{line}   {_both(point.held_value, point.held_price)}")
        return "\n".join(lines)

    # -- the curve as arrays -----------------------------------------------------------------------------------------

    @property
    def values(self) -> Vector:
        """`of` at each point, on the samples that tuned."""
        return self._column("value")

    @property
    def prices(self) -> Vector:
        """`against` at each point, on the samples that tuned."""
        return self._column("price")

    @property
    def held_values(self) -> Vector:
        """`of` at each point on samples that did not tune; NaN where there were none."""
        return self._column("held_value")

    @property
    def held_prices(self) -> Vector:
        """`against` at each point on samples that did not tune; NaN where there were none."""
        return self._column("held_price")

    def _column(self, name: str) -> Vector:
        return np.array([np.nan if (v := getattr(p, name)) is None else v for p in self.points], dtype=np.float64)

    # -- its policies ------------------------------------------------------------------------------------------------

    def nearest(self, price: float) -> int:
        """Which point comes nearest to a price.

        Parameters
        ----------
        price : float
            Of `against`, on the samples that tuned.

        Returns
        -------
        int
            For `policy`.
        """
        return int(np.abs(self.prices - price).argmin())

    def policy(self, i: int) -> Policy:
        """The policy of a point.

        Parameters
        ----------
        i : int
            Which one; negative numbers count from the end, where `of` is lowest.

        Returns
        -------
        Policy
        """
        if not -len(self) <= i < len(self):
            raise InputError(f"i is {i}; this frontier has {len(self)} points, from 0 to {len(self) - 1}.")
        return self.policies[i]

    # -- on disk -----------------------------------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """Everything in numbers, lists and text, as JSON has them.

        Returns
        -------
        dict
        """
        points = [
            {**point.to_dict(), "bound": _finite(bound), "policy": json.loads(policy.to_json())}
            for point, bound, policy in zip(self.points, self.bounds, self.policies, strict=True)
        ]
        landmarks = {name: point.to_dict() for name, point in self.landmarks.items()}
        head = {"schema": SCHEMA, "of": self.of, "against": self.against, "held_out": self.held_out}
        return head | {"landmarks": landmarks, "points": points}

    def to_json(self) -> str:
        """The same as text.

        Returns
        -------
        str
        """
        return json.dumps(self.to_dict(), indent=1, ensure_ascii=False)

    def save(self, path: str | Path) -> None:
        """Write the curve with its policies as JSON; a file that was there stays whole until the new one is complete.

        Parameters
        ----------
        path : str or Path
            Where to.
        """
        write_atomically(path, self.to_json().encode())

    @classmethod
    def load(cls, path: str | Path) -> Frontier:
        """Read and check what `save` wrote.

        Parameters
        ----------
        path : str or Path
            The file.

        Returns
        -------
        Frontier
        """
        try:
            content = json.loads(read_text(path))
        except InputError:
            raise
        except FileNotFoundError:
            raise InputError(f"{path}: no such file; `capri frontier … -o {path}` makes one.") from None
        except OSError as error:
            raise InputError(f"{path}: cannot be read ({error.strerror}).") from None
        except (ValueError, RecursionError) as error:
            raise InputError(f"{path}: not complete JSON ({error}); `capri frontier … -o {path}` makes one.") from None
        if not isinstance(content, dict) or content.get("schema") != SCHEMA:
            raise InputError(f"{path}: not a frontier of schema {SCHEMA}; `capri frontier … -o {path}` makes one.")
        try:
            points = content["points"]
            return cls(
                of=str(content["of"]),
                against=str(content["against"]),
                points=tuple(map(_point, points)),
                bounds=tuple(math.inf if p["bound"] is None else float(p["bound"]) for p in points),
                policies=tuple(Policy.from_json(json.dumps(p["policy"]), str(path)) for p in points),
                landmarks={str(name): _point(p) for name, p in content["landmarks"].items()},
                held_out=None if content["held_out"] is None else str(content["held_out"]),
            )
        except PolicyError:
            raise
        except (TypeError, LookupError, ValueError, AttributeError, OverflowError) as error:
            raise InputError(f"{path}: its content does not make a frontier ({short(str(error))}).") from None


def _both(value: float, price: float | None) -> str:
    return f"{100 * value:6.1f} for {100 * (math.nan if price is None else price):5.1f}"


def _finite(number: float) -> float | None:
    return number if math.isfinite(number) else None


def _point(content: Mapping[str, Any]) -> Point:
    """A point from its numbers."""
    known: dict[str, Any] = {}
    for field in fields(Point):
        value = content[field.name]
        if field.name.endswith("interval"):
            known[field.name] = None if value is None else tuple(map(_number, value))
        else:
            known[field.name] = None if value is None and field.name.startswith("held") else _number(value)
        if isinstance(known[field.name], tuple) and len(value) != 2:
            raise ValueError(f"{field.name} holds {short(value)}, not two numbers")
    return Point(**known)


def _number(value: Any) -> float:
    if not is_number(value):
        raise TypeError(f"{short(value)} is not a number")
    return float(value)
