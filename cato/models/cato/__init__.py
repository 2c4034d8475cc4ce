"""The paper in reading order: chart, attention, grid (block and CATO), cloud (CATO-PC)."""
