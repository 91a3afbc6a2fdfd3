"""Datasets, samplers, and what turns them into batches."""

from tinytorch.absent import names_of
from tinytorch.data import datasets, transforms
from tinytorch.data.collate import collate, convert
from tinytorch.data.dataloader import DataLoader
from tinytorch.data.dataset import (
    ChainDataset,
    ConcatDataset,
    Dataset,
    IterableDataset,
    Subset,
    TensorDataset,
    random_split,
)
from tinytorch.data.sampler import (
    BatchSampler,
    RandomSampler,
    Sampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

default_collate, default_convert = collate, convert  # PyTorch's names


def get_worker_info() -> None:
    """None: batches are made in the process that iterates over the loader."""


__all__ = [
    "BatchSampler",
    "ChainDataset",
    "ConcatDataset",
    "DataLoader",
    "Dataset",
    "IterableDataset",
    "RandomSampler",
    "Sampler",
    "SequentialSampler",
    "Subset",
    "SubsetRandomSampler",
    "TensorDataset",
    "WeightedRandomSampler",
    "collate",
    "convert",
    "datasets",
    "default_collate",
    "default_convert",
    "get_worker_info",
    "random_split",
    "transforms",
]

__getattr__ = names_of("torch.utils.data")  # names of PyTorch's that are not here
