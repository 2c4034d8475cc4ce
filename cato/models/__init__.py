"""Neural operators under one contract (`cato.models.contract`)."""
