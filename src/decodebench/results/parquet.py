"""The step logs of a run as Parquet: one row an engine step of one DP rank, every column an integer.

One row group holds one cohort. A cohort is written as a file of its own in `steps/` the moment it is over;
at the end of the run the files are merged into `steps.parquet`. Each file appears whole or not at all
(files.py), so a killed run loses no finished repeat.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from decodebench.errors import UserError
from decodebench.results.files import replacing
from decodebench.results.steps import STEP_COLUMNS, Steps

KEY_COLUMNS = ("point", "batch_size", "context_len", "launch", "repeat")
SCHEMA = pa.schema(
    [
        *((name, pa.int64()) for name in (*KEY_COLUMNS, "dp_rank", "release_step")),
        ("in_window", pa.bool_()),
        *((name, pa.int64()) for name in STEP_COLUMNS),
    ]
)


@dataclass(frozen=True, slots=True, order=True)
class RepeatKey:
    """Which cohort a step belongs to: the point by number and coordinates, the server start, the repeat."""

    point: int
    batch_size: int
    context_len: int
    launch: int
    repeat: int

    def __str__(self) -> str:
        where = f"point {self.point} (batch {self.batch_size}, context {self.context_len})"
        return f"{where}, launch {self.launch}, repeat {self.repeat}"


@dataclass(frozen=True, slots=True)
class RankSteps:
    """The step log of one cohort on one data-parallel rank.

    `release_step`: the connector's step number from which the cohort ran; `window`: the rows that were measured.
    """

    steps: Steps
    release_step: int
    window: range = range(0)
    dp_rank: int = 0


def to_table(key: RepeatKey, ranks: Sequence[RankSteps]) -> pa.Table:
    """One cohort; empty if no rank has steps."""
    return pa.concat_tables(
        [SCHEMA.empty_table(), *(_rank_table(key, rank) for rank in ranks)]
    ).combine_chunks()


def _rank_table(key: RepeatKey, rank: RankSteps) -> pa.Table:
    rows = len(rank.steps["step"])
    assert rank.window.step == 1, "a window is contiguous"
    assert not rank.window or 0 <= rank.window.start < rank.window.stop <= rows, (
        "the window is part of the log"
    )
    columns = {name: pa.array([getattr(key, name)] * rows, pa.int64()) for name in KEY_COLUMNS}
    columns["dp_rank"] = pa.array([rank.dp_rank] * rows, pa.int64())
    columns["release_step"] = pa.array([rank.release_step] * rows, pa.int64())
    columns["in_window"] = pa.array([row in rank.window for row in range(rows)], pa.bool_())
    columns |= {name: pa.array(rank.steps[name], pa.int64()) for name in STEP_COLUMNS}
    return pa.table(columns, schema=SCHEMA)


def key_of(table: pa.Table, path: Path) -> RepeatKey:
    """The cohort that a non-empty row group holds."""
    values = [table[name].unique().to_pylist() for name in KEY_COLUMNS]
    if any(len(distinct) != 1 for distinct in values):
        raise UserError(f"{path}: a row group holds more than one cohort; decodebench did not write it so")
    return RepeatKey(*(distinct[0] for distinct in values))


def to_ranks(table: pa.Table) -> tuple[RankSteps, ...]:
    """The inverse of `to_table`."""
    columns = table.to_pydict()
    ranks = []
    for dp_rank, group in groupby(enumerate(columns["dp_rank"]), key=lambda numbered: numbered[1]):
        rows = [row for row, _ in group]
        span = slice(rows[0], rows[-1] + 1)
        steps = {name: columns[name][span] for name in STEP_COLUMNS}
        release_step = columns["release_step"][span.start]
        ranks.append(RankSteps(steps, release_step, _window(columns["in_window"][span]), dp_rank))
    return tuple(ranks)


def _window(flags: list[bool]) -> range:
    """The rows from the first to the last flagged one."""
    if True not in flags:
        return range(0)
    return range(flags.index(True), len(flags) - flags[::-1].index(True))


def write(path: Path, cohorts: Iterable[pa.Table]) -> None:
    """Write the cohorts, in order, as one file."""
    with replacing(path) as temporary, pq.ParquetWriter(temporary, SCHEMA, compression="zstd") as writer:
        for table in cohorts:
            writer.write_table(table, row_group_size=max(1, table.num_rows))


def read(path: Path) -> Iterator[pa.Table]:
    """The cohorts of a file of ours, one in memory at a time; anything else at `path` is one `UserError`."""
    try:
        with pq.ParquetFile(path) as file:
            for index in range(file.num_row_groups):
                yield _checked(file.read_row_group(index), path)
    except FileNotFoundError:
        raise UserError(f"{path}: missing", "give the directory that `decodebench run` wrote") from None
    except (pa.ArrowException, OSError) as error:
        first_line = str(error).partition("\n")[0]
        raise UserError(
            f"{path}: cannot be read ({first_line})", "the file is damaged; measure again"
        ) from None


def _checked(table: pa.Table, path: Path) -> pa.Table:
    lacking = [name for name in SCHEMA.names if name not in table.column_names]
    if lacking:
        raise UserError(f"{path}: not a step log of decodebench (no column {', '.join(lacking)})")
    ours = table.select(SCHEMA.names)
    if ours.schema.types != SCHEMA.types:
        raise UserError(f"{path}: not a step log of decodebench (columns of other types)")
    if any(column.null_count for column in ours.columns):
        raise UserError(f"{path}: a step lacks a value", "the file is damaged; measure again")
    return ours
