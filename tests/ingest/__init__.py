"""Labels from Kafka and from files."""
