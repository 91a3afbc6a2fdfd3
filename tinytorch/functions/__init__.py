"""What can be done with tensors, as plain functions; `Tensor` has most of them as methods too."""
