"""The worker program: claims jobs, fits, publishes."""
