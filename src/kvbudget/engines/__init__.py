"""What each engine makes of a deployment: its defaults, its cache, its overhead, by version."""
