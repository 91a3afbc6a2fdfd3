"""PyTorch models as graphs: the forward, the joint forward and backward, the training step."""
