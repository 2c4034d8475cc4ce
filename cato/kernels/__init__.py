"""Compiled CPU loops and the neighbour search."""
