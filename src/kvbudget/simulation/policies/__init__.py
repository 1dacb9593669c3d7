"""Policies of other engines, read in their sources and not run."""
