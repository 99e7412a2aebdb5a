"""Files of any size that a job calibrates."""
