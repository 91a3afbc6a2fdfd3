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
    cases: Callable[..., Iterator[Case]],
    report: Callable[[Sequence[Result]], None],
    separator: str = ",",
    sizes: Sequence[str] = (),
) -> None:
    """Measure the cases that `--only` names, or all, and report them, or with `--json` print them.

    Args:
        doc: of the benchmark, for `--help`.
        known: names of cases.
        cases: takes names, and sizes if there are some.
        sizes: what `--sizes` chooses from; none for no such option.
    """
    parser = argparse.ArgumentParser(description=doc)
    parser.add_argument("--only", default="", help=f"of these names, with {separator!r} between")
    if sizes:
        parser.add_argument("--sizes", default=",".join(sizes), help=f"of {', '.join(sizes)}")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    options = parser.parse_args()
    names = options.only.split(separator) if options.only else [*known]
    if unknown := set(names) - {*known}:
        parser.error(f"--only: there is no {', '.join(sorted(unknown))}")
    chosen = options.sizes.split(",") if sizes else []
    if unknown := set(chosen) - {*sizes}:
        parser.error(f"--sizes: there is no {', '.join(sorted(unknown))}")
    torch.set_num_threads(1)
    tinytorch.set_backend("optimized")
    warnings.simplefilter("ignore")
    given = cases(names, chosen) if sizes else cases(names)
    results = [measure(case, clock="cpu", rounds=options.rounds, attempts=1) for case in given]
    print(as_json(results)) if options.json else report(results)
