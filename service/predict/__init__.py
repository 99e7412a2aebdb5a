"""The operation `calibrate` over REST and gRPC."""
