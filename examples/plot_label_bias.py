"""
A text classifier that likes some labels
========================================

A language model that sorts messages without having been trained for it gives every label a score, and likes some
label words whatever the message: that is *label bias*, and it acts like class shares that nobody ever saw. A few labels
remove it. After that the world goes on drifting: what arrives now is not what arrived when the labels were made.

The scores are made up here, so that the truth is known: evidence for each label, in a unit of its own, plus a bias.
"""

import matplotlib.pyplot as plt
import numpy as np

import capri
from capri.report.style import BLUE, ORANGE, style

labels = np.array(["billing", "delivery", "returns", "account", "praise", "other"])
bias = np.array([0.0, 2.5, -1.0, -2.0, 1.5, 3.0])  # "other" always sounds likely
rng = np.random.default_rng(0)


def messages(shares, n):
    """Labels, and what the model says of n messages."""
    y = rng.choice(6, n, p=shares)
    return labels[y], 0.6 * (rng.normal(size=(n, 6)) + 2.2 * np.eye(6)[y]) * 2.2 + bias


spring = np.array([0.3, 0.25, 0.15, 0.1, 0.1, 0.1])
autumn = np.array([0.05, 0.1, 0.6, 0.15, 0.05, 0.05])  # after the sale

# %%
# Two hundred messages of spring are labelled. The objective is the plain error, so shares matter.

known, scores = messages(spring, 200)
policy = capri.LogitAdjuster("plain", classes=labels).fit(scores, known).policy_

# %%
# In autumn nobody labels anything. The shares are estimated from the scores of what arrives, with the labelled messages
# of spring to calibrate the model and to check the result, and the policy follows.

truth, arriving = messages(autumn, 3000)
found = capri.estimate_shares(policy, arriving, validation=(scores, known))
moved = policy.for_shares(found.shares)

decisions = {
    "as the model says": labels[arriving.argmax(axis=1)],
    "tuned in spring": policy.predict(arriving),
    "for estimated shares": moved.predict(arriving),
    "for true shares": policy.for_shares(autumn).predict(arriving),
}
errors = {name: float(np.mean(decided != truth)) for name, decided in decisions.items()}
print({name: round(error, 3) for name, error in errors.items()})

# %%
# Most of the loss comes back without a label. Had the objective been the balanced error, there would be nothing to do:
# the best decision does not depend on shares then, and ``for_shares`` says so by returning the policy itself.

with style():
    figure, axes = plt.subplots(figsize=(8, 4), layout="constrained")
    place = np.arange(6)
    axes.bar(place - 0.2, autumn, 0.4, color=BLUE, label="true shares in autumn")
    axes.bar(place + 0.2, found.shares, 0.4, yerr=1.64 * found.error, color=ORANGE, label="estimated, without labels")
    axes.set(xticks=place, xticklabels=labels, ylabel="share", title="What arrives, by scores alone")
    axes.legend(frameon=False)
