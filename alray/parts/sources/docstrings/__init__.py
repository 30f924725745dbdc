"""Docstrings of the installed standard library, NumPy, SciPy and scikit-learn."""
