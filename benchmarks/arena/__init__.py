"""Methods against each other on tabular classifiers, by the protocol of CalArena."""
