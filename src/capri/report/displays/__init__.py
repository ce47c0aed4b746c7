"""Displays: plots in one line, in scikit-learn's convention. Data are attributes; only `plot` loads Matplotlib."""
