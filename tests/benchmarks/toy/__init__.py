"""Toy benchmark of the tests: Poisson's equation with an exact solver."""
