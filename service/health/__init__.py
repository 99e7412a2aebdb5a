"""Is it alive, can it serve, what does it count."""
