"""Wrong solutions that a student would plausibly write, and the points they lose."""

from tito.lessons.mistake import Alternative, Equivalent, Mistake

ROWS = """
class TensorDataset(tinytorch.data.TensorDataset):
    def __len__(self):
        return int(self.tensors[0].shape[0])

    def __getitem__(self, index):
        return tuple(t[index] for t in self.tensors)

    def get_batch(self, indices):
        rows = np.asarray(indices, dtype=np.int64)
        return [from_numpy(t.detach().numpy()[rows]) for t in self.tensors]
"""

PART = """
class Subset(tinytorch.data.Subset):
    def __getitem__(self, index):
        return self.dataset[self.indices[index]]

    def get_batch(self, indices):
        return batch_of(self.dataset, [self.indices[i] for i in indices])
"""

BATCHED = """
def batched(items, size, drop_last):
    batch = []
    for item in items:
        batch.append(item)
        if len(batch) == size:
            yield batch
            batch = []
    if batch and not drop_last:
        yield batch
"""

COUNT = """
def batch_count(samples, size, drop_last):
    whole, rest = divmod(samples, size)
    return whole + (rest > 0 and not drop_last)
"""

SAMPLER = """
class RandomSampler(tinytorch.data.RandomSampler):
    def __iter__(self):
        rng, total, count = as_generator(self.generator), len(self.data_source), self.num_samples
        if self.replacement:
            return iter(rng.integers(0, total, count).tolist())
        rounds = -(-count // total) if total else 0
        orders = [rng.permutation(total) for _ in range(rounds)]
        return iter(np.concatenate([*orders, np.empty(0, np.int64)])[:count].astype(int).tolist())
"""

LEAVES = """
def stack_leaves(leaves):
    first = leaves[0]
    if isinstance(first, Tensor):
        _check_shapes([leaf.shape for leaf in leaves])
        if any(leaf.requires_grad for leaf in leaves):
            return stack(list(leaves))
        return from_numpy(np.stack([leaf.numpy() for leaf in leaves]))
    if isinstance(first, np.ndarray | np.generic):
        _check_shapes([np.shape(leaf) for leaf in leaves])
        return from_numpy(np.stack(leaves))
    if isinstance(first, float):
        return tensor(list(leaves), dtype="float64")
    if isinstance(first, int):
        return tensor(list(leaves))
    raise TypeError(f"collate makes no batches of {type(first).__name__}")
"""

COLLATE = """
def collate(samples):
    if not samples:
        raise ShapeError("collate needs at least one sample, got none")
    first = samples[0]
    if isinstance(first, str | bytes):
        return samples
    if isinstance(first, Mapping):
        _check_same_fields([tuple(sample) for sample in samples])
        return {key: collate([sample[key] for sample in samples]) for key in first}
    if isinstance(first, tuple | list):
        _check_same_fields([tuple(range(len(sample))) for sample in samples])
        fields = [collate(field) for field in zip(*samples, strict=True)]
        return type(first)(*fields) if hasattr(first, "_fields") else fields
    return stack_leaves(samples)
"""

FILL = """
def fill(source, items, free, stop):
    end = End()
    try:
        iterator = iter(source)
        while free.acquire() and not stop.is_set():
            items.put(next(iterator))
    except StopIteration:
        pass
    except BaseException as error:
        end = End(error)
    items.put(end)
"""

PREFETCH = """
def prefetch(source, depth):
    items = SimpleQueue()
    free, stop = threading.Semaphore(depth), threading.Event()
    thread = start(fill, source, items, free, stop)
    try:
        while True:
            item = items.get()
            if isinstance(item, End):
                if item.error is not None:
                    raise item.error
                return
            yield item
            free.release()
    finally:
        stop.set()
        free.release()
        thread.join()
"""

NORMALIZE = """
class Normalize(tinytorch.data.transforms.Normalize):
    def __call__(self, images, generator):
        _, channels, _, _ = _image_shape(images)
        if len(self.mean) not in (1, channels):
            raise ShapeError(f"Normalize has {len(self.mean)} means for images {images.shape}")
        mean, std = (v.astype(images.dtype)[:, None, None] for v in (self.mean, self.std))
        return (images - mean) / std
"""

CROP = """
class RandomCrop(tinytorch.data.transforms.RandomCrop):
    def __call__(self, images, generator):
        _image_shape(images)
        p = self.padding
        padded = np.pad(images, ((0, 0), (0, 0), (p, p), (p, p)))
        rows, columns = _spare(padded, self.size)
        top = generator.integers(rows + 1, size=len(padded))
        left = generator.integers(columns + 1, size=len(padded))
        windows = np.lib.stride_tricks.sliding_window_view(padded, self.size, axis=(2, 3))
        return windows[np.arange(len(padded)), :, top, left]
"""

SPLIT = """
def random_split(dataset, lengths, generator=None):
    total = len(dataset)
    counts = _counts(lengths, total)
    order = as_generator(generator).permutation(total).tolist()
    ends = np.cumsum([0, *counts]).tolist()
    return [Subset(dataset, order[i:j]) for i, j in itertools.pairwise(ends)]
"""

LOADER = """
class DataLoader(tinytorch.data.DataLoader):
    def _iterate(self, epoch, first, numbers):
        batches = self._load(epoch, first, numbers)
        with closing(prefetch(batches, self.prefetch) if self.prefetch else batches) as batches:
            for taken, batch in enumerate(batches, first + 1):
                self._taken = taken
                yield batch
        self.epoch, self._taken = epoch + 1, 0

    def _load(self, epoch, first, numbers):
        for number, wanted in enumerate(numbers):
            if number < first:
                continue
            try:
                batch = self._transformed(self._fetch(wanted), epoch, number)
            except Exception as error:
                what = "" if isinstance(self.dataset, IterableDataset) else f": samples {wanted}"
                error.add_note(f"in batch {number} of epoch {epoch}{what}")
                raise
            yield batch
"""


def changed(text: str, old: str, new: str) -> str:
    """The text with `old`, which it has once, replaced."""
    if text.count(old) != 1:
        raise ValueError(f"{old!r} is {text.count(old)} times in the text")
    return text.replace(old, new)


MISTAKES = [
    Mistake(
        exercise="datasets",
        name="counts the tensors, not their rows",
        source=changed(ROWS, "int(self.tensors[0].shape[0])", "len(self.tensors)"),
        loses={"rows": 2, "rows-details": 2},
    ),
    Mistake(
        exercise="datasets",
        name="gives a list",
        source=changed(
            ROWS, "tuple(t[index] for t in self.tensors)", "[t[index] for t in self.tensors]"
        ),
        loses={"rows": 2},
    ),
    Mistake(
        exercise="datasets",
        name="makes a list of samples, not a batch",
        source=changed(
            ROWS,
            "[from_numpy(t.detach().numpy()[rows]) for t in self.tensors]",
            "[self[int(i)] for i in rows]",
        ),
        loses={"rows": 2, "rows-details": 2},
    ),
    Mistake(
        exercise="datasets",
        name="takes the rows of the first tensor only",
        source=changed(ROWS, "for t in self.tensors]", "for t in self.tensors[:1]]"),
        loses={"rows": 2, "rows-details": 2},
    ),
    Mistake(
        exercise="datasets",
        name="keeps the history",
        source=changed(ROWS, "from_numpy(t.detach().numpy()[rows])", "t[tinytorch.tensor(rows)]"),
        loses={"rows-details": 2},
    ),
    Mistake(
        exercise="datasets",
        name="takes the subset's number for the dataset's",
        source=changed(PART, "self.dataset[self.indices[index]]", "self.dataset[index]"),
        loses={"rows-of-a-part": 2, "split-parts": 1},
    ),
    Mistake(
        exercise="datasets",
        name="does not map the numbers of a batch",
        source=changed(PART, "[self.indices[i] for i in indices]", "indices"),
        loses={"rows-of-a-part": 2, "rows-details": 2},
    ),
    Mistake(
        exercise="datasets",
        name="gives the whole subset as a batch",
        source=changed(PART, "[self.indices[i] for i in indices]", "self.indices"),
        loses={"rows-of-a-part": 2, "rows-details": 2},
    ),
    Mistake(
        exercise="datasets",
        name="collates samples one by one",
        source=changed(
            PART,
            "batch_of(self.dataset, [self.indices[i] for i in indices])",
            "tinytorch.data.collate([self[i] for i in indices])",
        ),
        loses={"rows-details": 2},
    ),
    Mistake(
        exercise="batches",
        name="forgets the last one",
        source=changed(BATCHED, "    if batch and not drop_last:\n        yield batch\n", ""),
        loses={"batched-lists": 2},
    ),
    Mistake(
        exercise="batches",
        name="gives an empty list at the end",
        source=changed(BATCHED, "if batch and not drop_last", "if not drop_last"),
        loses={"batched-lists": 2},
    ),
    Mistake(
        exercise="batches",
        name="uses one list again and again",
        source=changed(BATCHED, "            batch = []", "            batch.clear()"),
        loses={"batched-lists": 2, "batched-lazily": 3},
    ),
    Mistake(
        exercise="batches",
        name="makes a list of everything first",
        source="""
def batched(items, size, drop_last):
    items = list(items)
    for i in range(0, len(items), size):
        if i + size <= len(items) or not drop_last:
            yield items[i : i + size]
""",
        loses={"batched-lazily": 3},
    ),
    Mistake(
        exercise="batches",
        name="leaves the last one out always",
        source=changed(BATCHED, "if batch and not drop_last", "if batch and drop_last"),
        loses={"batched-lists": 2},
    ),
    Mistake(
        exercise="batches",
        name="always counts the last one",
        source=changed(COUNT, "(rest > 0 and not drop_last)", "(rest > 0)"),
        loses={"batched-lists": 2, "batched-lazily": 3},
    ),
    Mistake(
        exercise="batches",
        name="counts one too many",
        source=changed(COUNT, "rest > 0", "rest >= 0"),
        loses={"batched-lists": 2},
    ),
    Mistake(
        exercise="order",
        name="adds up seed and position",
        source="""
def generator_at(seed, *position):
    return np.random.default_rng(seed + sum(position))
""",
        loses={"order-of-an-epoch": 3},
    ),
    Mistake(
        exercise="order",
        name="forgets the seed",
        source="""
def generator_at(seed, *position):
    return np.random.default_rng(np.random.SeedSequence(0, spawn_key=position))
""",
        loses={"order-of-an-epoch": 3},
    ),
    Mistake(
        exercise="order",
        name="has the same order in each epoch",
        source="""
def shuffled(samples, seed, epoch):
    return generator_at(seed).permutation(samples).tolist()
""",
        loses={"order-of-an-epoch": 3},
    ),
    Mistake(
        exercise="order",
        name="takes the number of the epoch for the seed",
        source="""
def shuffled(samples, seed, epoch):
    return generator_at(epoch, seed).permutation(samples).tolist()
""",
        loses={"order-of-an-epoch": 3},
    ),
    Mistake(
        exercise="order",
        name="draws with replacement",
        source="""
def shuffled(samples, seed, epoch):
    return generator_at(seed, epoch).integers(0, samples, samples).tolist()
""",
        loses={"order-of-an-epoch": 3},
    ),
    Mistake(
        exercise="order",
        name="gives an array",
        source="""
def shuffled(samples, seed, epoch):
    return generator_at(seed, epoch).permutation(samples)
""",
        loses={"order-of-an-epoch": 3},
    ),
    Mistake(
        exercise="order",
        name="gives one order however many are asked for",
        source=changed(SAMPLER, "-(-count // total) if total else 0", "1"),
        loses={"random-sampler": 3},
    ),
    Mistake(
        exercise="order",
        name="rounds down, and gives too few",
        source=changed(SAMPLER, "-(-count // total)", "count // total"),
        loses={"random-sampler": 3},
    ),
    Mistake(
        exercise="order",
        name="repeats the same order",
        source=changed(
            SAMPLER,
            "[rng.permutation(total) for _ in range(rounds)]",
            "[rng.permutation(total)] * rounds",
        ),
        loses={"random-sampler": 3},
    ),
    Mistake(
        exercise="order",
        name="divides by no samples",
        source=changed(SAMPLER, " if total else 0", ""),
        loses={"random-sampler": 3},
    ),
    Mistake(
        exercise="order",
        name="does not know replacement",
        source=changed(SAMPLER, "if self.replacement:", "if False:"),
        loses={"random-sampler": 3},
    ),
    Mistake(
        exercise="leaves",
        name="stacks by the op always",
        source=changed(LEAVES, "any(leaf.requires_grad for leaf in leaves)", "True"),
        loses={"leaves-details": 2},
    ),
    Mistake(
        exercise="leaves",
        name="asks the first one only for a gradient",
        source=changed(LEAVES, "any(leaf.requires_grad for leaf in leaves)", "first.requires_grad"),
        loses={"leaves-details": 2},
    ),
    Mistake(
        exercise="leaves",
        name="loses the history",
        source=changed(
            LEAVES,
            "        if any(leaf.requires_grad for leaf in leaves):\n"
            "            return stack(list(leaves))\n"
            "        return from_numpy(np.stack([leaf.numpy()",
            "        return from_numpy(np.stack([leaf.detach().numpy()",
        ),
        loses={"leaves-details": 2},
    ),
    Mistake(
        exercise="leaves",
        name="makes floats of float32",
        source=changed(LEAVES, ', dtype="float64"', ""),
        loses={"leaves-values": 3},
    ),
    Mistake(
        exercise="leaves",
        name="does not know NumPy's numbers",
        source=changed(LEAVES, "np.ndarray | np.generic", "np.ndarray"),
        loses={"leaves-values": 3},
    ),
    Mistake(
        exercise="leaves",
        name="does not look at the shapes of tensors",
        source=changed(LEAVES, "        _check_shapes([leaf.shape for leaf in leaves])\n", ""),
        loses={"leaves-details": 2},
    ),
    Mistake(
        exercise="leaves",
        name="does not look at the shapes of arrays",
        source=changed(LEAVES, "        _check_shapes([np.shape(leaf) for leaf in leaves])\n", ""),
        loses={"leaves-details": 2},
    ),
    Mistake(
        exercise="leaves",
        name="makes something of everything",
        source=changed(
            LEAVES,
            'raise TypeError(f"collate makes no batches of {type(first).__name__}")',
            "return leaves",
        ),
        loses={"leaves-details": 2},
    ),
    Mistake(
        exercise="structure",
        name="takes a string for a sequence",
        source=changed(
            COLLATE, "    if isinstance(first, str | bytes):\n        return samples\n", ""
        ),
        loses={"structure-values": 3, "structure-details": 3},
    ),
    Mistake(
        exercise="structure",
        name="gives tuples of tuples",
        source=changed(
            COLLATE,
            'type(first)(*fields) if hasattr(first, "_fields") else fields',
            "tuple(fields)",
        ),
        loses={"structure-values": 3, "structure-details": 3},
    ),
    Mistake(
        exercise="structure",
        name="forgets named tuples",
        source=changed(
            COLLATE, 'type(first)(*fields) if hasattr(first, "_fields") else fields', "fields"
        ),
        loses={"structure-details": 3},
    ),
    Mistake(
        exercise="structure",
        name="goes one level deep",
        source=changed(
            COLLATE, "[collate(field) for field in zip", "[stack_leaves(field) for field in zip"
        ),
        loses={"structure-values": 3},
    ),
    Mistake(
        exercise="structure",
        name="gives lists of the values of dictionaries",
        source=changed(
            COLLATE,
            "{key: collate([sample[key] for sample in samples]) for key in first}",
            "{key: [sample[key] for sample in samples] for key in first}",
        ),
        loses={"structure-values": 3, "structure-details": 3},
    ),
    Mistake(
        exercise="structure",
        name="does not compare keys",
        source=changed(
            COLLATE, "        _check_same_fields([tuple(sample) for sample in samples])\n", ""
        ),
        loses={"structure-details": 3},
    ),
    Mistake(
        exercise="structure",
        name="cuts samples to the shortest",
        source=changed(
            changed(
                COLLATE,
                "        _check_same_fields([tuple(range(len(sample))) for sample in samples])\n",
                "",
            ),
            ", strict=True",
            "",
        ),
        loses={"structure-details": 3},
    ),
    Mistake(
        exercise="structure",
        name="makes something of nothing",
        source=changed(
            COLLATE, 'raise ShapeError("collate needs at least one sample, got none")', "return []"
        ),
        loses={"structure-details": 3},
    ),
    Mistake(
        exercise="producer",
        name="puts no end",
        source=changed(FILL, "    items.put(end)\n", ""),
        loses={
            "producer-items": 2,
            "producer-slots": 2,
            "producer-errors": 2,
            "consumer-items": 2,
            "consumer-leaves": 2,
            "loader-details": 4,
        },
    ),
    Mistake(
        exercise="producer",
        name="lets the error end the thread",
        source=changed(FILL, "    except BaseException as error:\n        end = End(error)\n", ""),
        loses={"producer-items": 2, "producer-errors": 2, "consumer-items": 2},
    ),
    Mistake(
        exercise="producer",
        name="swallows the error",
        source=changed(FILL, "end = End(error)", "pass"),
        loses={"producer-items": 2, "producer-errors": 2, "consumer-items": 2},
    ),
    Mistake(
        exercise="producer",
        name="does not hear an interrupt",
        source=changed(FILL, "except BaseException as", "except Exception as"),
        loses={"producer-errors": 2},
    ),
    Mistake(
        exercise="producer",
        name="makes an item before it has a slot",
        source=changed(
            FILL,
            "        while free.acquire() and not stop.is_set():\n"
            "            items.put(next(iterator))\n",
            "        while not stop.is_set():\n"
            "            item = next(iterator)\n"
            "            free.acquire()\n"
            "            items.put(item)\n",
        ),
        loses={"producer-slots": 2, "consumer-ahead": 3},
    ),
    Mistake(
        exercise="producer",
        name="asks for the stop before it waits for a slot",
        source=changed(
            FILL,
            "free.acquire() and not stop.is_set()",
            "not stop.is_set() and free.acquire()",
        ),
        loses={"producer-slots": 2, "consumer-ahead": 3},
    ),
    Mistake(
        exercise="producer",
        name="has no bound",
        source=changed(FILL, "free.acquire() and not stop.is_set()", "not stop.is_set()"),
        loses={"producer-slots": 2, "consumer-ahead": 3},
    ),
    Mistake(
        exercise="producer",
        name="does not hear the stop",
        source=changed(FILL, "free.acquire() and not stop.is_set()", "free.acquire()"),
        loses={
            "producer-slots": 2,
            "producer-errors": 2,
            "consumer-ahead": 3,
            "consumer-leaves": 2,
        },
    ),
    Mistake(
        exercise="producer",
        name="asks for the iterator outside of try",
        source=changed(
            changed(FILL, "        iterator = iter(source)\n", ""),
            "    end = End()\n",
            "    end = End()\n    iterator = iter(source)\n",
        ),
        loses={"producer-items": 2},
    ),
    Mistake(
        exercise="consumer",
        name="takes the end for an item",
        source=changed(
            PREFETCH,
            "            if isinstance(item, End):\n"
            "                if item.error is not None:\n"
            "                    raise item.error\n"
            "                return\n",
            "",
        ),
        loses={"consumer-items": 2, "consumer-leaves": 2, "loader-details": 4},
    ),
    Mistake(
        exercise="consumer",
        name="loses the error",
        source=changed(
            PREFETCH,
            "                if item.error is not None:\n                    raise item.error\n",
            "",
        ),
        loses={"consumer-items": 2},
    ),
    Mistake(
        exercise="consumer",
        name="raises another error",
        source=changed(PREFETCH, "raise item.error", "raise OSError(str(item.error))"),
        loses={"consumer-items": 2},
    ),
    Mistake(
        exercise="consumer",
        name="gives no slot back",
        source=changed(
            PREFETCH,
            "            yield item\n            free.release()\n",
            "            yield item\n",
        ),
        loses={"consumer-items": 2, "consumer-ahead": 3, "consumer-leaves": 2, "loader-details": 4},
    ),
    Mistake(
        exercise="consumer",
        name="gives the slot back before the item is used",
        source=changed(
            PREFETCH,
            "            yield item\n            free.release()\n",
            "            free.release()\n            yield item\n",
        ),
        loses={"consumer-ahead": 3},
    ),
    Mistake(
        exercise="consumer",
        name="has one slot too many",
        source=changed(PREFETCH, "Semaphore(depth)", "Semaphore(depth + 1)"),
        loses={"consumer-ahead": 3},
    ),
    Mistake(
        exercise="consumer",
        name="does not wait for the thread",
        source=changed(PREFETCH, "        thread.join()\n", ""),
        loses={"consumer-leaves": 2},
    ),
    Mistake(
        exercise="consumer",
        name="ends the thread only if the loop goes to its end",
        source=changed(
            changed(
                PREFETCH,
                "    finally:\n        stop.set()\n        free.release()\n        thread.join()\n",
                "    finally:\n        pass\n",
            ),
            "                return\n",
            "                stop.set()\n"
            "                free.release()\n"
            "                thread.join()\n"
            "                return\n",
        ),
        loses={"consumer-ahead": 3, "consumer-leaves": 2},
    ),
    Mistake(
        exercise="consumer",
        name="makes everything first",
        source="""
def prefetch(source, depth):
    yield from list(source)
""",
        loses={"consumer-items": 2, "consumer-ahead": 3, "loader-details": 4},
    ),
    Mistake(
        exercise="consumer",
        name="starts the thread too early",
        source="""
def prefetch(source, depth):
    items = SimpleQueue()
    free, stop = threading.Semaphore(depth), threading.Event()
    thread = start(fill, source, items, free, stop)

    def consumed():
        try:
            while not isinstance(item := items.get(), End):
                yield item
                free.release()
            if item.error is not None:
                raise item.error
        finally:
            stop.set()
            free.release()
            thread.join()

    return consumed()
""",
        loses={"consumer-ahead": 3},
    ),
    Mistake(
        exercise="transforms",
        name="normalizes along the width",
        source=changed(NORMALIZE, "[:, None, None]", ""),
        loses={"normalized": 2},
    ),
    Mistake(
        exercise="transforms",
        name="makes float64",
        source=changed(NORMALIZE, "v.astype(images.dtype)[:, None, None]", "v[:, None, None]"),
        loses={"normalized": 2},
    ),
    Mistake(
        exercise="transforms",
        name="changes the caller's images",
        source=changed(
            NORMALIZE,
            "        return (images - mean) / std\n",
            "        images -= mean\n        images /= std\n        return images\n",
        ),
        loses={"normalized": 2},
    ),
    Mistake(
        exercise="transforms",
        name="subtracts after the division",
        source=changed(NORMALIZE, "(images - mean) / std", "images / std - mean"),
        loses={"normalized": 2},
    ),
    Mistake(
        exercise="transforms",
        name="broadcasts any number of means",
        source=changed(NORMALIZE, "len(self.mean) not in (1, channels)", "False"),
        loses={"transforms-details": 2},
    ),
    Mistake(
        exercise="transforms",
        name="moves all images alike",
        source=changed(
            changed(CROP, "rows + 1, size=len(padded)", "rows + 1, size=1"),
            "columns + 1, size=len(padded)",
            "columns + 1, size=1",
        ),
        loses={"cropped": 3},
    ),
    Mistake(
        exercise="transforms",
        name="never takes the last place",
        source=changed(changed(CROP, "rows + 1", "rows"), "columns + 1", "columns"),
        loses={"cropped": 3, "transforms-details": 2},
    ),
    Mistake(
        exercise="transforms",
        name="pads rows only",
        source=changed(
            CROP, "((0, 0), (0, 0), (p, p), (p, p))", "((0, 0), (0, 0), (p, p), (0, 0))"
        ),
        loses={"cropped": 3},
    ),
    Mistake(
        exercise="transforms",
        name="pads with the border",
        source=changed(CROP, "(p, p), (p, p)))", '(p, p), (p, p)), mode="edge")'),
        loses={"cropped": 3},
    ),
    Mistake(
        exercise="transforms",
        name="takes left for top",
        source=changed(CROP, ":, top, left]", ":, left, top]"),
        loses={"cropped": 3, "transforms-details": 2},
    ),
    Mistake(
        exercise="split",
        name="does not shuffle",
        source=changed(
            SPLIT, "as_generator(generator).permutation(total).tolist()", "list(range(total))"
        ),
        loses={"split-orders": 2},
    ),
    Mistake(
        exercise="split",
        name="draws each part by itself, from all",
        source="""
def random_split(dataset, lengths, generator=None):
    rng, total = as_generator(generator), len(dataset)
    return [Subset(dataset, rng.permutation(total)[:n].tolist()) for n in _counts(lengths, total)]
""",
        loses={"split-parts": 1, "split-orders": 2},
    ),
    Mistake(
        exercise="split",
        name="takes the lengths for the ends",
        source=changed(SPLIT, "np.cumsum([0, *counts]).tolist()", "[0, *counts]"),
        loses={"split-parts": 1, "split-orders": 2},
    ),
    Mistake(
        exercise="split",
        name="begins without a 0, and loses the first part",
        source=changed(SPLIT, "[0, *counts]", "counts"),
        loses={"split-parts": 1, "split-orders": 2},
    ),
    Mistake(
        exercise="split",
        name="does not check the lengths",
        source=changed(SPLIT, "_counts(lengths, total)", "lengths"),
        loses={"split-orders": 2},
    ),
    Mistake(
        exercise="loader",
        name="does not count batches",
        source=changed(LOADER, "                self._taken = taken\n", ""),
        loses={"loader-batches": 2, "loader-details": 4},
    ),
    Mistake(
        exercise="loader",
        name="counts a batch after it was used",
        source=changed(
            LOADER,
            "                self._taken = taken\n                yield batch\n",
            "                yield batch\n                self._taken = taken\n",
        ),
        loses={"loader-batches": 2, "loader-details": 4},
    ),
    Mistake(
        exercise="loader",
        name="counts from 1 in a resumed epoch",
        source=changed(LOADER, "enumerate(batches, first + 1)", "enumerate(batches, 1)"),
        loses={"loader-batches": 2, "loader-details": 4},
    ),
    Mistake(
        exercise="loader",
        name="stays in the same epoch",
        source=changed(LOADER, "self.epoch, self._taken = epoch + 1, 0", "self._taken = 0"),
        loses={"loader-batches": 2, "loader-details": 4},
    ),
    Mistake(
        exercise="loader",
        name="forgets the thread",
        source=changed(
            LOADER, "prefetch(batches, self.prefetch) if self.prefetch else batches", "batches"
        ),
        loses={"loader-details": 4},
    ),
    Mistake(
        exercise="loader",
        name="does not close what it iterates over",
        source=changed(
            changed(
                LOADER,
                "with closing(prefetch(batches, self.prefetch) if self.prefetch else batches)"
                " as batches:",
                "if True:",
            ),
            "        batches = self._load(epoch, first, numbers)\n",
            "        batches = self._load(epoch, first, numbers)\n"
            "        batches = prefetch(batches, self.prefetch) if self.prefetch else batches\n"
            "        self._kept = batches\n",
        ),
        loses={"loader-details": 4},
    ),
    Mistake(
        exercise="loader",
        name="begins every epoch at its beginning",
        source=changed(LOADER, "            if number < first:\n                continue\n", ""),
        loses={"loader-batches": 2, "loader-details": 4},
    ),
    Mistake(
        exercise="loader",
        name="skips one too many",
        source=changed(LOADER, "number < first", "number <= first"),
        loses={"loader-batches": 2, "loader-details": 4},
    ),
    Mistake(
        exercise="loader",
        name="makes what it skips",
        source=changed(
            changed(LOADER, "            if number < first:\n                continue\n", ""),
            "raise\n            yield batch\n",
            "raise\n            if number >= first:\n                yield batch\n",
        ),
        loses={"loader-details": 4},
    ),
    Mistake(
        exercise="loader",
        name="swallows the error",
        source=changed(LOADER, "                raise\n", "                continue\n"),
        loses={"loader-details": 4},
    ),
    Mistake(
        exercise="loader",
        name="says nothing about the place of an error",
        source=changed(
            LOADER,
            '                error.add_note(f"in batch {number} of epoch {epoch}{what}")\n',
            "",
        ),
        loses={"loader-details": 4},
    ),
    Mistake(
        exercise="loader",
        name="transforms by the number since the start, not by place",
        source=changed(LOADER, "epoch, number)\n", "0, number)\n"),
        loses={"loader-details": 4},
    ),
    Mistake(
        exercise="datasets",
        name="takes a row out of the history",
        source="""
class TensorDataset(tinytorch.data.TensorDataset):
    def __getitem__(self, index):
        return tuple(t.detach()[index] for t in self.tensors)
""",
        loses={"rows-details": 2},
    ),
    Mistake(
        exercise="batches",
        name="takes an item that is None for the end",
        source="""
def batched(items, size, drop_last):
    iterator, batch = iter(items), []
    while (item := next(iterator, None)) is not None:
        batch.append(item)
        if len(batch) == size:
            yield batch
            batch = []
    if batch and not drop_last:
        yield batch
""",
        loses={"batched-lists": 2},
    ),
    Mistake(
        exercise="split",
        name="takes a seed of its own where none is given",
        source="""
def random_split(dataset, lengths, generator=None):
    rng = as_generator(0 if generator is None else generator)
    order, parts = rng.permutation(len(dataset)).tolist(), []
    for count in _counts(lengths, len(dataset)):
        parts.append(Subset(dataset, order[:count]))
        order = order[count:]
    return parts
""",
        loses={"split-orders": 2},
    ),
    Mistake(
        exercise="loader",
        name="ends the epoch when the loop is left",
        source="""
class DataLoader(tinytorch.data.DataLoader):
    def _iterate(self, epoch, first, numbers):
        batches = self._load(epoch, first, numbers)
        batches = prefetch(batches, self.prefetch) if self.prefetch else batches
        try:
            for taken, batch in enumerate(batches, first + 1):
                self._taken = taken
                yield batch
        finally:
            batches.close()
            self.epoch, self._taken = epoch + 1, 0
""",
        loses={"loader-batches": 2},
    ),
]

ALTERNATIVES = [
    Alternative(
        exercise="transforms",
        name="draws from 0, the end included, and cuts windows one by one",
        source="""
class RandomCrop(tinytorch.data.transforms.RandomCrop):
    def __call__(self, images, generator):
        n, channels, _, _ = _image_shape(images)
        border = (self.padding, self.padding)
        padded = np.pad(images, ((0, 0), (0, 0), border, border))
        rows, columns = _spare(padded, self.size)
        tops = generator.integers(0, rows, n, endpoint=True)
        lefts = generator.integers(0, columns + 1, size=n)
        h, w = self.size
        windows = np.empty((n, channels, h, w), images.dtype)
        for i, (top, left) in enumerate(zip(tops, lefts)):
            windows[i] = padded[i, :, top : top + h, left : left + w]
        return windows
""",
    ),
    Alternative(
        exercise="datasets",
        name="maps itemgetters, and takes rows by np.take",
        source="""
class TensorDataset(tinytorch.data.TensorDataset):
    def __len__(self):
        return len(self.tensors[0].detach().numpy())

    def __getitem__(self, index):
        return (*(t[index] for t in self.tensors),)

    def get_batch(self, indices):
        batch = []
        for t in self.tensors:
            whole = t.detach().numpy()
            batch.append(from_numpy(np.take(whole, np.array(indices, np.int64), axis=0)))
        return batch


class Subset(tinytorch.data.Subset):
    def __getitem__(self, index):
        number = self.indices[index]
        return self.dataset[number]

    def get_batch(self, indices):
        return batch_of(self.dataset, list(map(self.indices.__getitem__, indices)))
""",
    ),
    Alternative(
        exercise="batches",
        name="slices an iterator, and rounds by a division",
        source="""
from itertools import islice


def batched(items, size, drop_last):
    iterator = iter(items)
    while batch := list(islice(iterator, size)):
        if len(batch) < size and drop_last:
            return
        yield batch


def batch_count(samples, size, drop_last):
    return samples // size if drop_last else -(-samples // size)
""",
    ),
    Alternative(
        exercise="order",
        name="builds the generator in steps, and chains the orders",
        source="""
def generator_at(seed, *position):
    sequence = np.random.SeedSequence(entropy=seed, spawn_key=tuple(position))
    return np.random.Generator(np.random.PCG64(sequence))


def shuffled(samples, seed, epoch):
    order = np.arange(samples)
    return [int(i) for i in generator_at(seed, epoch).permutation(order)]


class RandomSampler(tinytorch.data.RandomSampler):
    def __iter__(self):
        rng, total = as_generator(self.generator), len(self.data_source)
        if self.replacement:
            yield from rng.integers(total, size=self.num_samples).tolist()
            return
        left = self.num_samples if total else 0
        while left > 0:
            order = rng.permutation(total)[:left].tolist()
            left -= len(order)
            yield from order
""",
    ),
    Alternative(
        exercise="leaves",
        name="asks for numbers first, and stacks arrays by np.array",
        source="""
def stack_leaves(leaves):
    kind = leaves[0]
    if isinstance(kind, (np.ndarray, np.generic)):
        arrays = [np.asarray(leaf) for leaf in leaves]
        _check_shapes([array.shape for array in arrays])
        return from_numpy(np.array(arrays))
    if isinstance(kind, (bool, int, float)):
        options = {"dtype": "float64"} if isinstance(kind, float) else {}
        return tensor([*leaves], **options)
    if not isinstance(kind, Tensor):
        raise TypeError(f"no batch can be made of {type(kind).__name__} and its like")
    _check_shapes([leaf.shape for leaf in leaves])
    if not [leaf for leaf in leaves if leaf.requires_grad]:
        return from_numpy(np.stack([leaf.numpy() for leaf in leaves], axis=0))
    return stack(tuple(leaves), 0)
""",
    ),
    Alternative(
        exercise="structure",
        name="dispatches by a match statement",
        source="""
def collate(samples):
    if len(samples) == 0:
        raise ShapeError("a batch needs samples, got none")
    match samples[0]:
        case str() | bytes():
            return samples
        case Mapping() as first:
            _check_same_fields([tuple(sample.keys()) for sample in samples])
            batch = {}
            for key in first:
                batch[key] = collate([sample[key] for sample in samples])
            return batch
        case tuple() | list() as first:
            _check_same_fields([tuple(range(len(sample))) for sample in samples])
            fields = []
            for i in range(len(first)):
                fields.append(collate([sample[i] for sample in samples]))
            return type(first)._make(fields) if hasattr(first, "_fields") else fields
    return stack_leaves(samples)
""",
    ),
    Alternative(
        exercise="producer",
        name="loops by for, and ends by return",
        source="""
def fill(source, items, free, stop):
    items.put(_worked(source, items, free, stop))


def _worked(source, items, free, stop):
    try:
        iterator = iter(source)
        missing = object()
        while True:
            free.acquire()
            if stop.is_set():
                return End()
            item = next(iterator, missing)
            if item is missing:
                return End(None)
            items.put(item)
    except BaseException as raised:
        return End(raised)
""",
    ),
    Alternative(
        exercise="consumer",
        name="walks over iter(get, ...) with an assignment expression, and stops in a helper",
        source="""
def prefetch(source, depth):
    items, free, stop = SimpleQueue(), threading.Semaphore(depth), threading.Event()
    thread = start(fill, source, items, free, stop)
    try:
        while not isinstance(item := items.get(), End):
            yield item
            free.release()
        if item.error is not None:
            raise item.error
    finally:
        _end(thread, free, stop)


def _end(thread, free, stop):
    stop.set()
    free.release()
    thread.join()
""",
    ),
    Alternative(
        exercise="transforms",
        name="reshapes means, and cuts windows one by one",
        source="""
class Normalize(tinytorch.data.transforms.Normalize):
    def __call__(self, images, generator):
        count, channels, height, width = _image_shape(images)
        if len(self.mean) != 1 and len(self.mean) != channels:
            raise ShapeError(f"{len(self.mean)} means for {channels} channels")
        mean = self.mean.reshape(1, -1, 1, 1).astype(images.dtype)
        return np.divide(images - mean, self.std.reshape(1, -1, 1, 1).astype(images.dtype))


class RandomCrop(tinytorch.data.transforms.RandomCrop):
    def __call__(self, images, generator):
        count, channels, height, width = _image_shape(images)
        p = self.padding
        padded = np.zeros((count, channels, height + 2 * p, width + 2 * p), images.dtype)
        padded[:, :, p : p + height, p : p + width] = images
        spare = _spare(padded, self.size)
        tops, lefts = (generator.integers(most + 1, size=count) for most in spare)
        windows = np.empty((count, channels, *self.size), images.dtype)
        for i, (top, left) in enumerate(zip(tops, lefts)):
            windows[i] = padded[i, :, top : top + self.size[0], left : left + self.size[1]]
        return windows
""",
    ),
    Alternative(
        exercise="split",
        name="cuts from the front of one order",
        source="""
def random_split(dataset, lengths, generator=None):
    sizes = _counts(lengths, len(dataset))
    left = [int(i) for i in as_generator(generator).permutation(len(dataset))]
    parts = []
    for size in sizes:
        parts.append(Subset(dataset, left[:size]))
        left = left[size:]
    return parts
""",
    ),
    Alternative(
        exercise="loader",
        name="skips by islice, makes batches in a helper, and closes by hand",
        source="""
from itertools import islice


class DataLoader(tinytorch.data.DataLoader):
    def _iterate(self, epoch, first, numbers):
        source = self._load(epoch, first, numbers)
        if self.prefetch:
            source = prefetch(source, self.prefetch)
        done = first
        try:
            for batch in source:
                done += 1
                self._taken = done
                yield batch
        finally:
            source.close()
        self._taken = 0
        self.epoch = epoch + 1

    def _load(self, epoch, first, numbers):
        for number, wanted in islice(enumerate(numbers), first, None):
            yield self._made(epoch, number, wanted)

    def _made(self, epoch, number, wanted):
        try:
            return self._transformed(self._fetch(wanted), epoch, number)
        except Exception as error:
            note = f"in batch {number} of epoch {epoch}"
            if not isinstance(self.dataset, IterableDataset):
                note += f": samples {wanted}"
            error.add_note(note)
            raise
""",
    ),
]

EQUIVALENT = [
    Equivalent(
        "datasets",
        "TensorDataset.__len__: self.tensors[0] -> self.tensors[-1]",
        "all tensors of a TensorDataset have the same first dimension",
    ),
    Equivalent(
        "leaves",
        "stack_leaves: leaf.numpy() -> leaf",
        "np.stack asks a tensor for its array by itself",
    ),
]
