"""`decodebench show DIR`: the table of a finished, interrupted or running run once more, or of a `fidelity`.

    decodebench show decodebench-results/20261130T023000Z-tiny-gemma3
    decodebench show DIR --verify     # recompute every figure and verdict from the stored steps
    decodebench show DIR --json       # the document, on one line

Exit codes: 0; 2 if the directory cannot be read as a result; 6 (cannot tell) if `--verify` finds a figure or verdict
that its steps do not give: then neither may be trusted, and no statement about speed follows from either.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from decodebench.errors import EXIT_CANNOT_TELL, EXIT_OK

if TYPE_CHECKING:
    from decodebench.bench.verify import Mismatch
    from decodebench.results.schema import RunDocument
    from decodebench.results.store import Store

SHOWN = 20
"""Mismatches printed one by one; a damaged document has thousands."""


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = subparsers.add_parser(
        "show",
        help="print the result of a run or a fidelity again",
        description="Print the result of `run` or `fidelity` again; with --verify, check it against its steps.",
        epilog="Exit codes: 0; 2 not a readable result; 6 --verify found figures that the steps do not give.",
    )
    parser.add_argument(
        "directory",
        metavar="DIR",
        type=Path,
        help="the directory that `decodebench run` or `decodebench fidelity` wrote",
    )
    parser.add_argument(
        "--verify", action="store_true", help="recompute every figure and verdict from the steps"
    )
    parser.add_argument("--json", action="store_true", help="print the document as one line of JSON")


def run(args: argparse.Namespace) -> int:
    from decodebench.results.fidelity import FILE
    from decodebench.results.store import Store

    store = Store.open(args.directory)
    if (args.directory / FILE).exists() and not store.document_path.exists():
        return _show_fidelity(args)
    document = store.load()
    code = _verify(store, document, sys.stderr if args.json else sys.stdout) if args.verify else EXIT_OK
    if args.json:
        print(document.to_json(indent=None))
    else:
        from decodebench.report.terminal import console_for, print_report

        here = document.model_copy(update={"out": str(args.directory)})  # it may have been moved
        print_report(here, console_for(sys.stdout), is_running=store.is_written())
    return code


def _show_fidelity(args: argparse.Namespace) -> int:
    from decodebench.report.fidelity import print_fidelity
    from decodebench.report.terminal import console_for
    from decodebench.results.fidelity import load

    document = load(args.directory)
    code = EXIT_OK
    if args.verify:
        from decodebench.bench.fidelity_verify import verify_fidelity
        from decodebench.results import rounds

        found = verify_fidelity(document, rounds.load(args.directory))
        stream = sys.stderr if args.json else sys.stdout
        code = _tell(found.points, found.mismatches, f"{found.repeats} rounds", stream)
    if args.json:
        print(document.to_json(indent=None))
    else:
        here = document.model_copy(update={"out": str(args.directory)})
        print_fidelity(here, console_for(sys.stdout))
    return code


def _verify(store: "Store", document: "RunDocument", stream: TextIO) -> int:
    from decodebench.bench.fidelity_verify import verify_run_fidelity
    from decodebench.bench.verify import verify
    from decodebench.results import rounds

    # At once: a run that goes on measures more.
    measured = rounds.load(store.directory) if (store.directory / rounds.FILE).exists() else []
    compared = verify_run_fidelity(document, measured)
    result = verify(document, store.repeats())
    recomputed = f"{result.repeats} repeats"
    if compared.points:
        recomputed += f" and {compared.repeats} rounds of the comparison with real prefill"
    return _tell(result.points, (*result.mismatches, *compared.mismatches), recomputed, stream)


def _tell(points: int, mismatches: Sequence["Mismatch"], recomputed: str, stream: TextIO) -> int:
    """Print what was found; returns the exit code."""
    for mismatch in mismatches[:SHOWN]:
        print(mismatch, file=stream)
    if len(mismatches) > SHOWN:
        print(f"... and {len(mismatches) - SHOWN} more", file=stream)
    counts = f"{points} points, {recomputed} recomputed from their steps"
    print(f"verify: {counts}, {len(mismatches)} mismatches", file=stream)
    return EXIT_CANNOT_TELL if mismatches else EXIT_OK
