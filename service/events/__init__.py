"""What has changed, in pages and as a stream."""
