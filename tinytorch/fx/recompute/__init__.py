"""Less memory for more arithmetic: which activations to compute again, and the rewritten graph."""
