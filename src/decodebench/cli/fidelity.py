"""`decodebench fidelity [MODEL] [options] [-- vLLM options]`: how true is a step over filled KV?

decodebench fidelity                                                   # the built-in tiny model
decodebench fidelity small-moe --batch-size 16 --donors 1,4,16         # does the number of donors matter?

At each point cohorts that are really prefilled take turns with cohorts of each fill, on the same server. The figure is
the relative error of the filled step time, with its interval; it holds at that point only.
"""

import argparse
from pathlib import Path

from decodebench.cli.engine_options import add_engine_options

FILLS = ("constant", "normal", "donor")


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = subparsers.add_parser(
        "fidelity",
        help="measure how far steps over filled KV are from steps over really prefilled KV",
        epilog="Everything after `--` goes to `vllm serve` unchanged.",
    )
    add_engine_options(parser, with_fill=False)
    what = parser.add_argument_group("what is compared")
    what.add_argument(
        "--batch-size",
        metavar="N,...",
        default="8",
        help="requests decoding together, per data-parallel rank (default: %(default)s)",
    )
    what.add_argument(
        "--context-len",
        metavar="N,...",
        default="1k",
        help="KV tokens that a request reads in a step: 4k is 4,000, 4K is 4,096 (default: %(default)s)",
    )
    what.add_argument(
        "--fills",
        metavar="NAME,...",
        default="constant,donor",
        help=f"of {', '.join(FILLS)}; constant and normal need a server each (default: %(default)s)",
    )
    what.add_argument(
        "--donors",
        metavar="N,...",
        help="numbers of donors to compare, `all` for one a request of the largest batch (default: all)",
    )
    what.add_argument(
        "--donor-len",
        type=int,
        metavar="N",
        help="tokens of a donor (default: 2048, more where a window needs it)",
    )
    what.add_argument(
        "--donor-text",
        type=Path,
        metavar="FILE",
        help="text whose one half is prefilled and whose other half donors read (default: as `run` chooses)",
    )
    what.add_argument(
        "--seed", type=int, default=0, metavar="N", help="of prompts and order (default: %(default)s)"
    )
    what.add_argument(
        "--window-steps", type=int, metavar="N", help="steps measured in a cohort (default: 64)"
    )
    effort = parser.add_argument_group("how long")
    effort.add_argument(
        "--precision",
        metavar="P",
        default="0.015",
        help="stop when the half-width of every error's interval is at most this (default: 0.015)",
    )
    effort.add_argument(
        "--max-rounds", type=int, default=40, metavar="N", help="of a point (default: %(default)s)"
    )
    effort.add_argument(
        "--max-time", metavar="T", default="40m", help="for all servers together (default: %(default)s)"
    )
    where = parser.add_argument_group("where results go")
    where.add_argument(
        "--out", type=Path, metavar="DIR", help="results (default: decodebench-results/TIME-MODEL-fidelity)"
    )
    where.add_argument(
        "--json", action="store_true", help="print the result as one JSON document in the last line"
    )


def run(args: argparse.Namespace) -> int:
    from decodebench.cli.fidelity_session import compare, read

    return compare(read(args))
