"""Slow float64 references, written from the formulas alone, and the tests that compare the package with them."""
