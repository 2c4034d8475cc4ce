"""The paper's theory, executed: charted axial low-rank operators and CATO weights that are them."""
