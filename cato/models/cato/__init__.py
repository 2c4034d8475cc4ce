"""The paper in reading order: chart, attention, block, grid (CATO), cloud (CATO-PC)."""
