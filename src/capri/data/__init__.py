"""Data: long-tail profiles and splits, label noise, readers for CIFAR, ImageNet-LT and feature files.

Everything here is NumPy; only `capri.data.batches`, `capri.data.images` and `capri.data.modules` need torch.
"""

from capri.data.imagenet_lt import imagenet_lt_counts
from capri.data.noise import add_label_noise, draw_noise_rates, noise_attribute
from capri.data.profiles import exponential_counts, long_tail, step_counts
from capri.data.splits import Part, Splits, assemble

__all__ = [
    "Part",
    "Splits",
    "add_label_noise",
    "assemble",
    "draw_noise_rates",
    "exponential_counts",
    "imagenet_lt_counts",
    "long_tail",
    "noise_attribute",
    "step_counts",
]
