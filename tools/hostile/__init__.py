"""Attacks on run folders and commands, as campaigns that count what they find.

Every module has `campaign(seconds, seed) -> counts`. It attacks with random choices of the seed
until the time is up, and returns how many attacks were tried and how they ended. Any count of
"wrong", "tracebacks" or "hangs" above 0 is a bug.
"""
