"""Schema migrations, run by `Registry.migrate`; one file a step, never edited once released."""
