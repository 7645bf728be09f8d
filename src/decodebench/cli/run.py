"""`decodebench run [MODEL] [options] [-- vLLM options]`: measure a grid of batch sizes and context lengths.

decodebench run                                                     # the built-in tiny model
decodebench run MODEL --batch-size 1,32,256 --context-len 4k,32k -- -dp 4 -ep
decodebench run --resume decodebench-results/...                    # go on where it ended
"""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from decodebench.cli.engine_options import add_donor_options, add_engine_options

if TYPE_CHECKING:
    from decodebench.results.schema import RunDocument

DEFAULT_BATCH_SIZES = "1,8"
DEFAULT_CONTEXT_LENS = "1k,4k"


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = subparsers.add_parser(
        "run",
        help="measure the decode step time of a grid of batch sizes and context lengths",
        epilog="Everything after `--` goes to `vllm serve` unchanged.",
    )
    add_engine_options(parser, ("constant", "normal", "donor"))
    add_donor_options(parser)
    grid = parser.add_argument_group("what is measured")
    grid.add_argument(
        "--batch-size",
        metavar="N,...",
        default=DEFAULT_BATCH_SIZES,
        help="requests decoding together, per data-parallel rank (default: %(default)s)",
    )
    grid.add_argument(
        "--context-len",
        metavar="N,...",
        default=DEFAULT_CONTEXT_LENS,
        help="KV tokens that a request reads in a step: 4k is 4,000, 4K is 4,096 (default: %(default)s)",
    )
    grid.add_argument(
        "--seed", type=int, default=0, metavar="N", help="of prompts and order (default: %(default)s)"
    )
    grid.add_argument(
        "--window-steps", type=int, metavar="N", help="steps measured in a repeat (default: 64)"
    )
    effort = parser.add_argument_group("how long it is measured")
    effort.add_argument(
        "--precision",
        metavar="P",
        default="0.02",
        help="stop when the interval's half-width is at most this share of the mean: 0.02 or 2%% (default: 2%%)",
    )
    effort.add_argument(
        "--require-precision", action="store_true", help="exit with code 4 if a point misses the precision"
    )
    effort.add_argument(
        "--max-repeats", type=int, default=40, metavar="N", help="of a point (default: %(default)s)"
    )
    effort.add_argument(
        "--launches", type=int, default=1, metavar="N", help="server starts (default: %(default)s)"
    )
    effort.add_argument("--max-time", metavar="T", help="end after this time: 300, 5m, 2h (default: none)")
    effort.add_argument(
        "--stall-timeout",
        metavar="T",
        default="5m",
        help="give a repeat up when nothing moves (default: %(default)s)",
    )
    where = parser.add_argument_group("where it runs, and where results go")
    where.add_argument(
        "--url", metavar="URL", help="measure a server that runs already (see `decodebench serve`)"
    )
    where.add_argument(
        "--out", type=Path, metavar="DIR", help="results (default: decodebench-results/TIME-MODEL)"
    )
    where.add_argument("--resume", type=Path, metavar="DIR", help="go on with a run that ended early")
    where.add_argument(
        "--from", dest="from_dir", type=Path, metavar="DIR", help="run again what DIR was run with"
    )
    where.add_argument("--config", type=Path, metavar="FILE", help="options from a TOML or JSON file")
    where.add_argument(
        "--dry-run", action="store_true", help="say what would be measured and what fits; start nothing"
    )
    where.add_argument(
        "--json", action="store_true", help="print the result as one JSON document in the last line"
    )


def run(args: argparse.Namespace) -> int:
    from decodebench.cli.run_arguments import read
    from decodebench.cli.run_session import dry_run, measure

    request = read(args)
    if request.dry_run:
        return dry_run(request)
    return measure(request)


def show(document: "RunDocument", as_json: bool) -> None:
    """The table, and with `--json` the document as the last line of stdout."""
    from decodebench.report.terminal import console_for, print_report

    print_report(document, console_for(sys.stdout))
    if as_json:
        print(document.to_json(indent=None), flush=True)


def exit_code(document: "RunDocument") -> int:
    """4 without a valid point, or when a required precision was missed."""
    from decodebench.errors import EXIT_NO_VALID_POINT, EXIT_OK
    from decodebench.results.status import Status

    valid = [point for point in document.points if point.status is Status.VALID]
    missed = document.settings.require_precision and any(point.precision_missed for point in valid)
    return EXIT_OK if valid and not missed else EXIT_NO_VALID_POINT
