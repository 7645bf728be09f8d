"""The options that say what is measured and how long: shared by every verb that measures."""

import argparse
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from decodebench.errors import UserError

if TYPE_CHECKING:
    from decodebench.bench.grid import GridPoint

_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}


def add_grid_options(
    parser: argparse.ArgumentParser, title: str, *, batch_sizes: str, context_lens: str
) -> "argparse._ArgumentGroup":
    """The points, and what every cohort has in common; returns the group, for options of the verb's own."""
    grid = parser.add_argument_group(title)
    grid.add_argument(
        "--batch-size",
        metavar="N,...",
        default=batch_sizes,
        help="requests decoding together, per data-parallel rank (default: %(default)s)",
    )
    grid.add_argument(
        "--context-len",
        metavar="N,...",
        default=context_lens,
        help="KV tokens that a request reads in a step: 4k is 4,000, 4K is 4,096 (default: %(default)s)",
    )
    grid.add_argument(
        "--seed", type=int, default=0, metavar="N", help="of prompts and order (default: %(default)s)"
    )
    grid.add_argument(
        "--window-steps", type=int, metavar="N", help="steps measured in a cohort (default: 64)"
    )
    return grid


def add_effort_options(
    parser: argparse.ArgumentParser,
    title: str,
    *,
    precision: str,
    precise: str,
    max_time: str | None,
    counted: str,
) -> "argparse._ArgumentGroup":
    """When it is enough. `precise`: what the precision is of; `counted`: what of the command's time."""
    effort = parser.add_argument_group(title)
    effort.add_argument(
        "--precision",
        metavar="P",
        default=precision,
        help=f"stop when {precise} is at most this: 0.02 or 2%% (default: %(default)s)",
    )
    effort.add_argument(
        "--max-time",
        metavar="T",
        default=max_time,
        help=f"end after this time, all servers together, {counted}: 300, 5m, 2h (default: {max_time or 'none'})",
    )
    return effort


def add_output_options(
    parser: argparse.ArgumentParser, title: str, *, directory: str
) -> "argparse._ArgumentGroup":
    """`directory`: where results go that name none."""
    where = parser.add_argument_group(title)
    where.add_argument("--out", type=Path, metavar="DIR", help=f"results (default: {directory})")
    where.add_argument(
        "--json", action="store_true", help="print the result as one JSON document in the last line"
    )
    return where


@dataclass(frozen=True, slots=True)
class Measured:
    """The values of the grid and effort options, checked."""

    batch_sizes: tuple[int, ...]
    context_lens: tuple[int, ...]
    seed: int
    window_steps: int
    precision: float
    max_time_s: float | None

    @property
    def points(self) -> tuple["GridPoint", ...]:
        from decodebench.bench.grid import grid

        return grid(self.batch_sizes, self.context_lens)


def read_measured(args: argparse.Namespace) -> Measured:
    """Raises `UserError` for whatever is wrong with them."""
    from decodebench.bench.window_plan import MIN_WINDOW_STEPS, WINDOW_STEPS
    from decodebench.kv.units import parse_counts

    window_steps = WINDOW_STEPS if args.window_steps is None else args.window_steps
    require_at_least("--seed", args.seed, 0)
    require_at_least("--window-steps", window_steps, MIN_WINDOW_STEPS)
    return Measured(
        batch_sizes=parse_counts(args.batch_size, "--batch-size"),
        context_lens=parse_counts(args.context_len, "--context-len"),
        seed=args.seed,
        window_steps=window_steps,
        precision=parse_share(args.precision, "--precision"),
        max_time_s=parse_seconds(args.max_time, "--max-time") if args.max_time is not None else None,
    )


def require_at_least(option: str, value: int, least: int) -> None:
    if value < least:
        raise UserError(f"{option} {value}: too low", f"write a whole number, {least} or more")


def parse_seconds(text: str, option: str) -> float:
    """`300`, `300s`, `5m`, `2h` in seconds."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smh]?)", text.strip(), re.ASCII)
    seconds = float(found[1]) * _UNITS[found[2]] if found else 0.0
    if seconds <= 0:
        raise UserError(f"{option} {text!r} is not a time above 0", "write it as 300, 5m or 2h")
    return seconds


def parse_share(text: str, option: str) -> float:
    """`0.02` or `2%`, between 0 and 1."""
    found = re.fullmatch(r"(\d*\.?\d+)(%?)", text.strip(), re.ASCII)
    share = float(found[1]) / (100 if found[2] else 1) if found else 0.0
    if not 0 < share < 1:
        raise UserError(f"{option} {text!r} is not a share between 0 and 1", "write it as 0.02 or 2%")
    return share
