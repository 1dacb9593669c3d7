"""What arrives at an engine: requests, traces of real ones and generators of likely ones."""
