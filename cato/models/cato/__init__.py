"""The paper in reading order: chart, rotary, attention, block, CATO (grid, mesh), CATO-PC (cloud)."""
