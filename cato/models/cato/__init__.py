"""The paper in reading order: chart, rotary, attention, block, grid (CATO), cloud (CATO-PC)."""
