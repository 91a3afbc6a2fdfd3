"""What a pass may ask of PyTorch's operators: effects, costs, names."""
