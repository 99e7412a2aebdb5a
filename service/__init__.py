"""The front-end program: REST and gRPC over one set of transport-free handlers."""
