"""Which tracers take a model, which refuse it, and which get it wrong."""
