"""`decodebench run [MODEL] [options] [-- vLLM options]`: measure a grid of batch sizes and context lengths.

decodebench run                                                     # the built-in tiny model
decodebench run MODEL --batch-size 1,32,256 --context-len 4k,32k -- -dp 4 -ep
decodebench run --resume decodebench-results/...                    # go on where it ended
"""

import argparse
from pathlib import Path

from decodebench.cli.donor_options import add_donor_options
from decodebench.cli.engine_options import NUMBERS, add_engine_options
from decodebench.cli.measure_options import add_effort_options, add_grid_options, add_output_options


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = subparsers.add_parser(
        "run",
        help="measure the decode step time of a grid of batch sizes and context lengths",
        epilog="Everything after `--` goes to `vllm serve` unchanged.",
    )
    add_engine_options(parser, ("donor", *NUMBERS))
    add_donor_options(parser)
    grid = add_grid_options(parser, "what is measured", batch_sizes="1,8", context_lens="1k,4k")
    grid.add_argument(
        "--fidelity",
        action="store_true",
        help="behind the grid, measure the error of the fill against real prefill: at the largest batch at which a "
        "real prefill fits and its shortest context, for at most 5 minutes and a quarter of --max-time",
    )
    grid.add_argument(
        "--audit",
        action="store_true",
        help="before every release, read the filled pages back and prove that they hold what was written and that no "
        "other page has changed",
    )
    effort = add_effort_options(
        parser,
        "how long it is measured",
        precision="0.02",
        precise="the half-width of the interval, as a share of the mean,",
        max_time=None,
        counted="server starts included",
    )
    effort.add_argument(
        "--require-precision", action="store_true", help="exit with code 4 if a point misses the precision"
    )
    effort.add_argument(
        "--max-repeats",
        type=int,
        default=40,
        metavar="N",
        help="of a point in each launch; what --resume starts is another launch (default: %(default)s)",
    )
    effort.add_argument(
        "--launches", type=int, default=1, metavar="N", help="server starts (default: %(default)s)"
    )
    effort.add_argument(
        "--stall-timeout",
        metavar="T",
        default="5m",
        help="give a repeat up when nothing moves (default: %(default)s)",
    )
    where = add_output_options(
        parser, "where it runs, and where results go", directory="decodebench-results/TIME-MODEL"
    )
    where.add_argument(
        "--url", metavar="URL", help="measure a server that runs already (see `decodebench serve`)"
    )
    where.add_argument("--resume", type=Path, metavar="DIR", help="go on with a run that ended early")
    where.add_argument(
        "--from", dest="from_dir", type=Path, metavar="DIR", help="run again what DIR was run with"
    )
    where.add_argument("--config", type=Path, metavar="FILE", help="options from a TOML or JSON file")
    where.add_argument(
        "--dry-run", action="store_true", help="say what would be measured and what fits; start nothing"
    )


def run(args: argparse.Namespace) -> int:
    from decodebench.cli.run_arguments import read
    from decodebench.cli.run_session import dry_run, measure

    request = read(args)
    if request.dry_run:
        return dry_run(request)
    return measure(request)
