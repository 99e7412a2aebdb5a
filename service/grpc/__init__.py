"""gRPC: server, handlers, errors and messages."""
