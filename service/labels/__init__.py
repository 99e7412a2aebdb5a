"""Late labels: the true classes of earlier predictions, by prediction id."""
