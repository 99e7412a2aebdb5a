"""Is what is served still calibrated: traffic, evidence, and what is done about it."""
