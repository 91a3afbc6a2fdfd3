"""Datasets, and what turns them into batches."""

from tinytorch.data import datasets, transforms
from tinytorch.data.collate import collate
from tinytorch.data.dataloader import DataLoader
from tinytorch.data.dataset import Dataset, Subset, TensorDataset, random_split

__all__ = [
    "DataLoader",
    "Dataset",
    "Subset",
    "TensorDataset",
    "collate",
    "datasets",
    "random_split",
    "transforms",
]
