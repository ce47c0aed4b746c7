"""Theory: when do several attributes help? A Gaussian mixture answers exactly.

`gmm` solves the limit of high dimension, `simulation` checks it at finite size, `slab` holds what both share.
`fisher` is the consistency theorem of the weighted loss, `bridge` leads from the VS loss to the cost-sensitive SVM.
"""
