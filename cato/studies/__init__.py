"""Studies: many trainings in a queue, their figures in one results file, and a page made of it."""
