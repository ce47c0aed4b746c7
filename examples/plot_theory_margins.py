"""
How much margin should a rare class get?
========================================

Two Gaussian classes, the minority a tenth of the data. A cost-sensitive SVM gives the minority δ times the margin of
the majority. Which δ is best? In high dimension the answer is exact, and it takes *two* attributes of the classes: how
rare the minority is, and how noisy.
"""

# %%
# The best margin ratio
# ---------------------
# ``gmm.solve`` takes arrays. Here the noise variance of the minority runs from half to twice that of the majority.

import matplotlib.pyplot as plt
import numpy as np

from capri_paper.theory import figures, gmm, simulation

ratios = np.array([0.5, 1.0, 2.0])
minority = gmm.solve(pi=0.1, s_plus=np.sqrt(ratios), s_minus=1.0, R=2.0, dbar=1.0)
for ratio, delta, plain, best in zip(
    ratios,
    minority.delta_star,
    minority.errors(1).risk,
    minority.errors(minority.delta_star).risk,
    strict=True,
):
    print(f"variance ratio {ratio:3}: δ* = {delta:.2f}, balanced error {plain:.3f} at δ = 1, {best:.3f} at δ*")

# %%
# One attribute is not enough
# ---------------------------
# A δ chosen for the frequency alone (as if both classes were equally noisy) leaves error on the table.

frequency_only = minority.delta_star[1]
print("balanced error, frequency alone:      ", minority.errors(frequency_only).risk.round(4))
print("balanced error, frequency and noise:  ", minority.errors(minority.delta_star).risk.round(4))

# %%
# The limit is not far away
# -------------------------
# Five SVMs fitted to 400 samples each give nearly the errors of the limit.

fitted = simulation.measure(0.1, np.sqrt(2.0), 1.0, 2.0, 1.0, n=400, seeds=range(5))
print("Err₊, Err₋ fitted:   ", [f"{errors.mean():.3f}" for errors in fitted.errors(4.0)[:2]])
print("Err₊, Err₋ in limit: ", [f"{errors[2]:.3f}" for errors in minority.errors(4.0)[:2]])

# %%
# Over the sample size
# --------------------
# More samples per dimension lower the best ratio at first; towards the limit of separability it grows without bound.

figures.margin_figure(plt.figure(figsize=(9, 4.3), layout="constrained"), n=200, seeds=3)
plt.show()

# %%
# Where the intuition fails
# -------------------------
# With a weak signal, a noisier minority is best given *less* margin: the threshold that is best for the direction found
# moves against the noisier class.

figures.low_signal_figure(plt.figure(figsize=(10, 4.7), layout="constrained"), n=200, seeds=3)
plt.show()
