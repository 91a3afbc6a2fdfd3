import itertools

import torch
from torch import nn
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
)

import draws


class TextStream(IterableDataset):
    """Windows of a stream of characters, one after the other."""

    def __init__(self, text, window):
        super().__init__()
        self.ids = [ord(c) - 97 if c.isalpha() else 26 for c in text]
        self.window = window

    def __iter__(self):
        for start in range(0, len(self.ids) - self.window):
            chunk = torch.tensor(self.ids[start : start + self.window + 1])
            yield chunk[:-1], chunk[-1]


class Lines:
    """A map-style data set that inherits from nothing."""

    def __init__(self, lines):
        self.lines = lines

    def __len__(self):
        return len(self.lines)

    def __getitem__(self, i):
        return self.lines[i], len(self.lines[i])


def collate_fn(batch):
    words, lengths = zip(*batch)
    width = max(lengths)
    padded = torch.zeros(len(words), width, dtype=torch.int64)
    for row, word in zip(padded, words):
        for j, c in enumerate(word):
            row[j] = ord(c)
    return padded, torch.tensor(lengths)


stream = TextStream("the rain in spain stays mainly in the plain", window=4)
loader = DataLoader(stream, batch_size=8)
model = draws.init_(nn.Sequential(nn.Embedding(27, 6), nn.Flatten(), nn.Linear(24, 27)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
for step, (context, target) in enumerate(itertools.islice(loader, 5)):
    loss = nn.functional.cross_entropy(model(context), target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, tuple(context.shape), f"{loss.item():.6f}")

words = Lines("a list of words of several lengths to be padded".split())
for padded, lengths in DataLoader(words, batch_size=4, collate_fn=collate_fn, drop_last=False):
    print(tuple(padded.shape), lengths.tolist(), padded.sum().item())
batches = BatchSampler(SequentialSampler(words), batch_size=3, drop_last=True)
print(list(batches), len(batches))
for padded, lengths in DataLoader(words, batch_sampler=batches, collate_fn=collate_fn):
    print(lengths.tolist())
g = torch.Generator()
g.manual_seed(0)
shuffled = list(RandomSampler(words, generator=g))
print(sorted(shuffled), len(DataLoader(words, batch_size=4)))
for names, lengths in DataLoader(words, batch_size=5):
    print(names, lengths)
