"""Our own gRPC interface, version 1."""
