"""Numerical solvers: pure functions of their parameters, with no knowledge of learning."""
