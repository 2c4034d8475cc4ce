"""cato: neural networks that stand in for PDE solvers."""

__version__ = "0.1.0"
