"""Labels that come late: what became of a prediction, said by its id."""
