"""The engine: what it computes, and that nothing is lost when it ends early."""
