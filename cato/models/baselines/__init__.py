"""The fifteen baselines of the paper, one file each."""
