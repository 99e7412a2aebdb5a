"""The training engine: train a network from a recipe."""
