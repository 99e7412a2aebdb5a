"""What `proto/recalib` becomes."""
