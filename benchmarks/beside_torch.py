"""The command line of benchmarks that set `optimized` beside PyTorch, on one thread."""

import argparse
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence

import torch
from runner import Case, Result, as_json, measure

import tinytorch


def run(
    doc: str | None,
    known: Iterable[str],
    cases: Callable[[Sequence[str]], Iterator[Case]],
    report: Callable[[Sequence[Result]], None],
    separator: str = ",",
) -> None:
    """Measure the cases that `--only` names, or all, and report them, or with `--json` print them.

    Args:
        doc: of the benchmark, for `--help`.
        known: names of cases.
    """
    parser = argparse.ArgumentParser(description=doc)
    parser.add_argument("--only", default="", help=f"of these names, with {separator!r} between")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    options = parser.parse_args()
    names = options.only.split(separator) if options.only else [*known]
    if unknown := set(names) - {*known}:
        parser.error(f"--only: there is no {', '.join(sorted(unknown))}")
    torch.set_num_threads(1)
    tinytorch.set_backend("optimized")
    warnings.simplefilter("ignore")
    results = [
        measure(case, clock="cpu", rounds=options.rounds, attempts=1) for case in cases(names)
    ]
    print(as_json(results)) if options.json else report(results)
