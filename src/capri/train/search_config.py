"""What a bilevel search is told, on top of a training run (`capri search --print-config`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal, Self

from capri._checks import InputError
from capri._provenance import file_digest
from capri.evidence import REGISTRY
from capri.train.config import Config, LossConfig, check_least, resolve_as
from capri.train.presets import PRESETS
from capri.train.settings import merge, option

ATTRIBUTES = tuple(REGISTRY)
PLAIN = ("identity",)
FOLDED = ("population", "unrolled")  # methods in which folds of the training samples judge
WHOLE = (*FOLDED, "proxy")  # methods that see the end of training
HEADS = ("population", "proxy")  # methods in which many heads judge, side by side
TAUS, GAMMAS = (0.5, 1.0, 1.5, 2.0, 3.0), (0.1, 0.2, 0.3)  # of LA and VS, which searches of these judge first
SMOOTHED_TAUS, SMOOTHINGS = (0.5, 1.0, 1.5, 2.0), (0.1, 0.4)  # of LA with label smoothing, where that is searched
SPREAD_GUARD = 2.0  # what a spread costs, beside itself, for each unit of balanced error above cross-entropy's
SCALED_TAUS, SCALES = (1.0, 2.0, 3.0), (0.3, 0.1)  # of LA with one multiplier for all classes, in searches by folds
POPULATIONS = 3  # version of the search by populations: raise it where another strategy would be found
PROXIES = 1  # the same of the search by proxy
LEAST: Mapping[str, float] = {
    "search.epochs": 0, "search.warmup_epochs": 0, "search.every": 1, "search.batch_size": 0, "search.lr": 0,
    "search.weight_decay": 0, "search.prior": 0, "search.damping": 0, "search.iterations": 1, "search.terms": 0,
    "search.folds": 0, "search.generations": 1, "search.population": 4, "search.network_epochs": 0,
}  # fmt: skip


@dataclass(frozen=True)
class SearchConfig:
    """The outer level: what moves, on which objective, how, and how often."""

    attributes: tuple[str, ...] = option(
        ("freq", "diff"),
        f"class attributes that make the strategy: some of {', '.join(ATTRIBUTES)}; "
        "or identity alone, one free number per class (AutoBalance)",
    )
    parts: tuple[str, ...] = option(
        (),
        "what is searched: some of l (offsets), delta (multipliers), omega (weights), smoothing; empty: l and delta, "
        "and smoothing where a population judges",
    )
    method: Literal["auto", "one-step", "population", "unrolled", "proxy"] = option(
        "auto",
        "how to search: population (networks trained to the end, for heads on features), unrolled (the derivative "
        "through such trainings), proxy (a population of heads on the features of one network, for images), one-step "
        "(a hypergradient during one training), or auto (population for heads, one-step for others)",
    )
    delta_form: Literal["auto", "normalized", "sigmoid", "exp"] = option(
        "auto", "how multipliers are made of D w: normalized (the paper's), sigmoid, exp, or auto, by method"
    )
    scaling: Literal["auto", "whiten", "ordered", "standardize", "raw"] = option(
        "auto", "scaling of the dictionary's columns: whiten, ordered, standardize, raw, or auto, by method"
    )
    objective: str = option("balanced", "what to lower on validation: any objective on class errors, such as cvar:0.2")
    class_loss: Literal["auto", "ce", "error"] = option(
        "auto",
        "smooth stand-in for a class error: ce (cross-entropy), error (1 − p), or auto (error for spreads, else ce)",
    )
    weights: tuple[float, ...] = option(
        (), "importance of each class at test time, for the objective and the attribute weights"
    )
    epochs: int = option(0, "epochs of the search; 0: as many as in retraining (trainer.max_epochs)")
    folds: int = option(
        5,
        "for population and unrolled: folds of the training samples, each of which validates once; 0: the validation "
        "part does (data.val_fraction), as where its labels are clean and those of training are not",
    )
    generations: int = option(6, "for population and proxy: how many; for unrolled: steps, at most")
    population: int = option(12, "for population and proxy: strategies in a generation")
    precision: Literal["auto", "32-true", "bf16-mixed"] = option(
        "auto",
        "for population and proxy: arithmetic in which the heads that judge are trained: 32-true (single), bf16-mixed, "
        "or auto (bf16 where the processor computes in it)",
    )
    known: str = option(
        "",
        "for population: judged.npz of an earlier search of the same data, whose judgements are taken over, so that "
        "another objective, or other attributes, need few generations; empty: none",
    )
    network_epochs: int = option(
        0, "for proxy: epochs of the network whose features are searched on; 0: as many as in retraining"
    )
    warmup_epochs: int = option(5, "for one-step: epochs before the strategy moves; diff is measured at their end")
    every: int = option(5, "for one-step: training steps from one move of the strategy to the next")
    batch_size: int = option(0, "validation samples per move of the strategy; 0: as many as in a training batch")
    tau: float = option(
        0.0,
        "offsets start at logit adjustment with this τ, l = τ log π; 0: they start at zero. For proxy: that with which "
        "the network of the features trains",
    )
    hessian: Literal["identity", "ggn-cg", "neumann"] = option(
        "identity", "inverse Hessian in the hypergradient: identity (fastest), ggn-cg or neumann (AutoBalance's)"
    )
    damping: float = option(0.1, "for ggn-cg: what is added to the curvature")
    iterations: int = option(10, "for ggn-cg: iterations of conjugate gradients, at most")
    terms: int = option(5, "for neumann: terms of the series beyond the first")
    step: float = option(1.0, "for neumann: step of the series")
    optimizer: Literal["adam", "sgd"] = option("adam", "optimizer of the strategy: adam or sgd")
    lr: float = option(0.02, "learning rate of the strategy")
    follow: bool = option(True, "the strategy's learning rate falls with the network's")
    momentum: float = option(0.9, "for sgd: momentum of the strategy's optimizer")
    weight_decay: float = option(0.0, "weight decay of W, the numbers that make the strategy")
    draw: Literal["uniform", "importance"] = option(
        "uniform",
        "for one-step: how validation samples are drawn: uniform (each once in turn), or importance (by what they "
        "weigh in the objective, so that all count alike: less noise where classes are rare)",
    )
    average: float = option(
        0.0, "for one-step: the strategy found is at the mean of W over this share of the last moves; 0: the last W"
    )
    prior: float = option(0.0, "for one-step: λ of λ‖W − W₀‖², which holds W at its start W₀")
    trust: bool = option(
        False, "for one-step: moves are shortened to the share of them that is signal, by the spread of gradients"
    )
    limit: float = option(30.0, "stop if the largest and the smallest offset lie further apart than this")
    init: str = option(
        "",
        "file of network weights to start from, as `capri pretrain` writes it; for proxy: of the network of "
        "the features, trained on the same training part; empty: none",
    )


@dataclass(frozen=True)
class SearchRun(Config):
    """All settings of a bilevel search. ``capri search --print-config`` explains every one of them.

    Parameters
    ----------
    preset, seed, out, data, model, loss, optimizer, schedule, trainer
        As in `Config`. `loss` stays as it is by default: it is what the search finds.
    search : SearchConfig
        What moves, for which objective, by which steps.
    """

    search: SearchConfig = field(default_factory=SearchConfig)

    def __post_init__(self) -> None:
        super().__post_init__()
        s = self.search
        unknown = [a for a in s.attributes if a not in ATTRIBUTES and s.attributes != PLAIN]
        if unknown or not s.attributes:
            raise InputError(
                f"search.attributes is {list(s.attributes)}; give some of {', '.join(ATTRIBUTES)}, or identity alone."
            )
        check_least(self, LEAST)
        if s.folds == 1:
            raise InputError("search.folds is 1; it must be at least 2, or 0, where the validation part judges.")
        if not 0 <= s.momentum < 1:
            raise InputError(f"search.momentum is {s.momentum}; it must lie in [0, 1).")
        if not 0 <= s.average <= 1:
            raise InputError(f"search.average is {s.average}; it must lie in [0, 1].")
        if s.precision == "bf16-mixed" and self.method not in HEADS:
            raise InputError(
                f"search.precision is 'bf16-mixed', and a search by {self.method} goes by derivatives, in single "
                "precision; leave it out."
            )
        if s.known and self.method != "population":
            raise InputError(
                f"search.known names judgements, which a search by {self.method} cannot take over; leave it out, or "
                "set search.method=population."
            )
        self.check_per_class("search.weights")
        if self.method == "one-step" and s.warmup_epochs >= self.search_epochs:
            raise InputError(
                f"search.warmup_epochs is {s.warmup_epochs} of {self.search_epochs} epochs: nothing is left to search "
                "in; lower it, or raise search.epochs (or trainer.max_epochs where that is 0)."
            )
        if self.loss != LossConfig():
            raise InputError("the section loss is what a search finds; start it with search.tau, and leave loss out.")
        if self.trainer.devices * self.trainer.num_nodes > 1 and self.method != "one-step":
            raise InputError(
                f"a search by {self.method} runs on one device; set trainer.devices=1, or search.method=one-step. "
                "Retraining takes as many as given."
            )

    @property
    def method(self) -> str:
        """How it searches: heads on features by populations, unless each class has a number of its own."""
        heads = self.model.name in ("linear", "mlp") and self.search.attributes != PLAIN
        return self.search.method if self.search.method != "auto" else "population" if heads else "one-step"

    def settled(self) -> Self:
        """With the choices made that were left to the method.

        Returns
        -------
        SearchRun
        """
        form, scaling = ("exp", "ordered") if self.method in WHOLE else ("sigmoid", "whiten")
        s = self.search
        chosen = replace(
            s,
            method=self.method,  # type: ignore[arg-type]
            delta_form=form if s.delta_form == "auto" else s.delta_form,  # type: ignore[arg-type]
            scaling=scaling if s.scaling == "auto" else s.scaling,  # type: ignore[arg-type]
            parts=s.parts or (("l", "delta", "smoothing") if self.method == "population" else ("l", "delta")),
            precision=s.precision if self.method in HEADS else "32-true",  # derivatives are of single precision
        )
        folded = self.method in FOLDED and s.folds
        data = replace(self.data, val_fraction=0.0) if folded else self.data
        return replace(self, search=chosen, data=data)

    @property
    def search_epochs(self) -> int:
        """Epochs of the search itself."""
        return self.search.epochs or self.trainer.max_epochs

    def _anywhere(self) -> Self:
        s = self.search
        return replace(super()._anywhere(), search=replace(s, init=file_digest(s.init), known=file_digest(s.known)))

    def training(self, **changes: Any) -> Config:
        """The same run without the search.

        Parameters
        ----------
        **changes
            Fields of `Config` to set otherwise.

        Returns
        -------
        Config
        """
        plain = Config(**{f.name: getattr(self, f.name) for f in fields(Config)})
        return replace(plain, **changes)


#: On top of the training presets: 20 % of each class validates, and how long the warm-up is.
SEARCH_PRESETS: Mapping[str, Mapping[str, Any]] = {
    "cpu": {"search": {"epochs": 12, "warmup_epochs": 5}},
    "paper": {
        "search": {
            "warmup_epochs": 120,
            "every": 20,
            "tau": 1.0,
            "delta_form": "normalized",
            "optimizer": "sgd",
            "lr": 0.05,
            "momentum": 0.9,
            "weight_decay": 1e-4,
            "hessian": "neumann",
        }
    },
    "strong": {"search": {"epochs": 20, "warmup_epochs": 8}},
    "imagenet-lt": {"search": {"warmup_epochs": 5}},
    "clinc150-lt": {"data": {"imbalance": 50.0}, "search": {"warmup_epochs": 5, "every": 1}},
    "features": {"search": {"warmup_epochs": 5, "every": 1}},
}


def resolve_search(
    file: str | Path | None = None,
    *,
    preset: str | None = None,
    out: str | None = None,
    assignments: Sequence[str] = (),
) -> SearchRun:
    """Preset, then the file, then ``--set``: each over the one before."""
    return resolve_as(SearchRun, _all_presets(), file, preset, out, assignments).settled()


def _all_presets() -> dict[str, dict[str, Any]]:
    """What all searches share, then the training preset, then what is the search's own."""
    shared = {"out": "runs/search", "data": {"val_fraction": 0.2}}
    return {name: merge(merge(shared, PRESETS[name]), own) for name, own in SEARCH_PRESETS.items()}
