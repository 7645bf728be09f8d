"""`decodebench fidelity [MODEL] [options] [-- vLLM options]`: how true is a step over filled KV?

decodebench fidelity                                                   # the built-in tiny model
decodebench fidelity small-moe --batch-size 16 --donors 1,4,16         # does the number of donors matter?

At each point cohorts that are really prefilled take turns with cohorts of each fill, on the same server. The figure is
the relative error of the filled step time, with its interval; it holds at that point only.
"""

import argparse

from decodebench.cli.donor_options import add_donor_options
from decodebench.cli.engine_options import NUMBERS, add_engine_options
from decodebench.cli.measure_options import add_effort_options, add_grid_options, add_output_options

FILLS = (*NUMBERS, "donor")
PASSES = 3
"""A real prefill costs more than its steps, and prompts that the prefix cache holds are not prefilled again."""


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = subparsers.add_parser(
        "fidelity",
        help="measure how far steps over filled KV are from steps over really prefilled KV",
        epilog="Everything after `--` goes to `vllm serve` unchanged.",
    )
    add_engine_options(parser, fills=())
    what = add_grid_options(parser, "what is compared", batch_sizes="8", context_lens="1k")
    what.add_argument(
        "--fills",
        metavar="NAME,...",
        default="constant,donor",
        help=f"of {', '.join(FILLS)}; constant and normal need a server each (default: %(default)s)",
    )
    add_donor_options(parser, several_counts=True)
    effort = add_effort_options(
        parser,
        "how long",
        precision="0.015",
        precise="the half-width of every interval",
        max_time="40m",
        counted="server starts not included",
    )
    effort.add_argument(
        "--passes",
        type=int,
        default=PASSES,
        metavar="N",
        help="rounds with the same prompts, which are prefilled once where prefixes are cached (default: %(default)s)",
    )
    effort.add_argument(
        "--max-draws",
        type=int,
        default=40,
        metavar="N",
        help="draws of prompts that a point is measured with (default: %(default)s)",
    )
    add_output_options(parser, "where results go", directory="decodebench-results/TIME-MODEL-fidelity")


def run(args: argparse.Namespace) -> int:
    from decodebench.cli.fidelity_session import compare, read

    return compare(read(args))
