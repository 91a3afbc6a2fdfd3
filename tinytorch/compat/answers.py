"""What to write instead of a name or keyword of PyTorch's that there is not.

The table is `answers.txt`: a section for each owner, and lines `name name ...: sentence`. A name
may have `*` in it; a line with the name itself counts, else the first pattern that fits. A keyword
is written `function(keyword)`. In a sentence `{name}` is the name and `{base}` the name without `_`
or `_copy` at its end.
"""

from __future__ import annotations

import functools
import re
from fnmatch import fnmatchcase
from pathlib import Path

Table = dict[str, list[tuple[str, str]]]


@functools.cache
def table() -> Table:
    """Owner -> (name or pattern, sentence), in the order of the file."""
    entries: Table = {}
    owners: list[str] = []
    for number, line in enumerate(
        Path(__file__).with_suffix(".txt").read_text(encoding="utf-8").splitlines(), 1
    ):
        if line.startswith("["):
            owners = line.strip("[]").split()
        elif line.strip() and not line.startswith("#"):
            names, colon, sentence = line.partition(": ")
            if not colon:
                raise ValueError(f"answers.txt, line {number}: no `name: sentence` in {line!r}")
            for owner in owners:
                entries.setdefault(owner, []).extend((n, sentence.strip()) for n in names.split())
    return entries


def sentence_for(owner: str, name: str) -> str | None:
    """What to write instead of `owner.name`, or None if the table does not know it.

    >>> sentence_for("torch.Tensor", "to_sparse")
    'there are no sparse tensors; use a dense one, or scipy.sparse on x.numpy()'
    """
    entries = table().get(owner, ())
    exact = [sentence for given, sentence in entries if given == name]
    fitting = (sentence for given, sentence in entries if "*" in given and fnmatchcase(name, given))
    sentence = exact[0] if exact else next(fitting, None)
    return sentence and sentence.replace("{base}", _base(name)).replace("{name}", name)


def _base(name: str) -> str:
    return name.removesuffix("_copy").rstrip("_")


def answer(owner: str, name: str) -> str:
    """The message for a name that is not there."""
    if owner in ("torch.Tensor", "torch.nn.Module"):
        bare = f"{owner.rpartition('.')[2]!r} object has no attribute {name!r}"
    else:
        bare = f"module {owner.replace('torch', 'tinytorch', 1)!r} has no attribute {name!r}"
    sentence = sentence_for(owner, name)
    return bare if sentence is None else f"{bare}: {sentence}"


_KEYWORD = re.compile(
    r"(?:\w+\.)*?(?:(\w+)\.__init__|(\w+))\(\) got an unexpected keyword argument '(\w+)'"
)


def keyword_sentence(message: str) -> str | None:
    """What to write instead of the keyword that a TypeError's message complains of, or None.

    >>> keyword_sentence("AdamW.__init__() got an unexpected keyword argument 'differentiable'")
    'build the update of your own from ops, and call autograd.grad(create_graph=True)'
    """
    found = _KEYWORD.search(message)
    if found is None:
        return None
    function, keyword = found[1] or found[2], found[3]
    return sentence_for("keywords", f"{function}({keyword})") or sentence_for(
        "keywords", f"*({keyword})"
    )


def explain(error: BaseException) -> None:
    """Add to a TypeError about an unexpected keyword, as a note, what to write instead."""
    if isinstance(error, TypeError) and not getattr(error, "__notes__", None):
        sentence = keyword_sentence(str(error))
        if sentence is not None:
            error.add_note(f"TinyTorch: {sentence}")
