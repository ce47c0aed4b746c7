"""
A hundred classes, and what one could have chosen instead
=========================================================

Scores of a ResNet-32 on CIFAR-100 come with the package: it was trained on 500 images of the most frequent class and 5
of the rarest, and fails the rare ones nearly always. Half of its test images tune, the other half judges.
"""

import numpy as np

import capri
from capri import packs
from capri.report import (
    ClassErrorDisplay,
    ConfusionDifferenceDisplay,
    FrontierDisplay,
    LadderDisplay,
    LineDisplay,
    SamplesDisplay,
)

pack = packs.load("cifar100-lt")
val, test = pack.halves(seed=0)
labels = np.array(pack.class_names)[pack.y]
counts = dict(zip(pack.class_names, pack.train_counts.tolist(), strict=True))

tuned = capri.LogitAdjuster("cvar:0.2", classes=pack.class_names)
tuned.fit(pack.logits[val], labels[val], class_counts=counts)
tuned.validation_

# %%
# Who gains, and who pays:

display = ClassErrorDisplay.from_estimator(tuned, pack.logits[test], labels[test], class_counts=counts)

# %%
# Where errors go, among the classes that are confused most. Blue is better: fewer errors, or more hits on the diagonal.

display = ConfusionDifferenceDisplay.from_estimator(tuned, pack.logits[test], labels[test])

# %%
# Simpler ways, judged out of fold, as the answer itself is:

display = LadderDisplay.from_estimator(tuned)

# %%
# The objective along the line of logit adjustment, exactly:

display = LineDisplay.from_estimator(tuned, pack.logits[val], labels[val])

# %%
# What does it cost in overall error, where classes are as common as in training, and what could one have for less?

display = FrontierDisplay.from_estimator(tuned, pack.logits[val], labels[val], class_counts=counts, points=6)

# %%
# How many validation images does it need?

display = SamplesDisplay.from_estimator(tuned, pack.logits[val], labels[val], class_counts=counts, repeats=3)

# %%
# All of it on one page:

report = tuned.report(pack.logits[test], labels[test])
report
