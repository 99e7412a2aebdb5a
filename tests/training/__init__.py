"""The worker: its loop in this process, and its deaths in real ones."""
