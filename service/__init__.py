"""The front-end program: REST (and later gRPC) over one set of transport-free handlers."""
