"""Tables only: a row is a fact, with its source and the date it was read.

Nothing here computes a budget. Each table is a module of its own, so a command loads only the one it needs.
"""
