"""Code that `make proto` writes from `proto/`; nothing here is edited by hand."""
