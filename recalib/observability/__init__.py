"""Log lines and OpenTelemetry traces."""
