"""What one server process keeps to serve calibrators; knows no transport."""
