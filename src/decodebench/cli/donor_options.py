"""The options about donors: really prefilled prompts whose KV pages fill the requests."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from decodebench.cli.measure_options import require_at_least
from decodebench.connector.params import MAX_DONORS
from decodebench.errors import UserError

if TYPE_CHECKING:
    from decodebench.bench.donor_set import DonorOptions


def add_donor_options(parser: argparse.ArgumentParser, *, several_counts: bool = False) -> None:
    """With `several_counts`, `--donors` takes a list: numbers of donors to compare."""
    donors = parser.add_argument_group("donors: really prefilled prompts whose KV pages fill the requests")
    if several_counts:
        donors.add_argument(
            "--donors",
            metavar="N,...",
            help="numbers of donors to compare, `all` for one a request of the largest batch (default: all)",
        )
    else:
        donors.add_argument(
            "--donors",
            type=int,
            metavar="N",
            help="how many, per data-parallel rank (default: one for every request of the largest batch, as far as "
            "the workers' bank holds them)",
        )
    donors.add_argument(
        "--donor-len",
        type=int,
        metavar="N",
        help="tokens of each (default: 2048, more where a window needs it)",
    )
    donors.add_argument(
        "--donor-text",
        type=Path,
        metavar="FILE",
        help="text that they read, paragraphs between blank lines (default: random ids for random weights, a text set "
        "of ours for real ones)",
    )


def named_donor_options(args: argparse.Namespace) -> str:
    """Those on the command line, for a message; empty if there are none."""
    given = {"--donors": args.donors, "--donor-len": args.donor_len, "--donor-text": args.donor_text}
    return ", ".join(option for option, value in given.items() if value is not None)


def read_donors(args: argparse.Namespace, count: int | None, *, halved: bool) -> "DonorOptions":
    """What was asked of the donors. `halved`: one half of the text is for requests that are really prefilled."""
    from decodebench.bench.donor_prompts import Text
    from decodebench.bench.donor_set import DonorOptions

    if count is not None and not 1 <= count <= MAX_DONORS:
        raise UserError(f"--donors {count}: no such number of donors", f"write 1 to {MAX_DONORS}")
    if args.donor_len is not None:
        require_at_least("--donor-len", args.donor_len, 2)
    text = Text.read(args.donor_text) if args.donor_text is not None else None
    if halved and text is not None and len(text.paragraphs) < 2:
        raise UserError(
            f"--donor-text {args.donor_text}: one paragraph cannot be halved",
            "one half is really prefilled, the other half is read by donors: part it by blank lines",
        )
    return DonorOptions(count, args.donor_len, text)
