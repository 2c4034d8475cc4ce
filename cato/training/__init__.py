"""Training: the loop, optimisers and schedule, devices."""
