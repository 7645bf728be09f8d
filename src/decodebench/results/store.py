"""The directory of one run.

    run.json         the document (schema.py), replaced as a whole after every change
    steps.parquet    every step of every cohort (parquet.py), once the run has ended
    steps/           the same, one file a cohort, while it lasts
    rounds.jsonl     steps of the comparison with real prefill (rounds.py), if one was asked for
    server.log       what the server wrote, all launches
    run.log          what decodebench itself reported

    store = Store.create(default_directory("org/model"))
    store.append_repeat(key, ranks)   # first the steps,
    store.write(document)             # then the document that refers to them
    store.finish(document)            # last document, steps merged

The document is the truth: steps of a cohort that it does not mention (a crash came between the two writes)
are replaced when a resumed run measures that cohort, and dropped at the end.
"""

import fcntl
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Self

import pyarrow as pa
from pydantic import JsonValue

from decodebench.errors import UserError
from decodebench.results import parquet
from decodebench.results.files import replacing, storage_errors
from decodebench.results.fingerprint import require_equal
from decodebench.results.parquet import RankSteps, RepeatKey
from decodebench.results.schema import RunDocument, parse

_GIVE_A_RUN = "give the directory that `decodebench run` wrote"


def default_directory(model: str, now: datetime | None = None) -> Path:
    """`decodebench-results/<UTC time>-<model>`, where a run goes that names no directory."""
    stamp = (now or datetime.now(UTC)).astimezone(UTC).strftime("%Y%m%dT%H%M%SZ")
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", model.rstrip("/").rsplit("/", 1)[-1]).strip("-.") or "model"
    return Path("decodebench-results") / f"{stamp}-{name[:80]}"


@dataclass(slots=True)
class Store:
    """Reads and writes the directory of one run. Whoever writes holds its lock until `close` or its end."""

    directory: Path
    _lock: int | None = None

    @classmethod
    def create(cls, directory: Path) -> Self:
        """A new, empty directory that this process may write to."""
        if directory.is_dir() and any(directory.iterdir()):
            next_step = "choose another directory with --out, or continue that run with --resume"
            raise UserError(f"{directory}: exists and is not empty; results are never overwritten", next_step)
        with storage_errors(directory):
            (directory / "steps").mkdir(parents=True)
            return cls(directory, _locked(directory))

    @classmethod
    def open(cls, directory: Path) -> Self:
        """An existing run, to read."""
        if not directory.is_dir():
            raise UserError(f"{directory}: no such directory", _GIVE_A_RUN)
        return cls(directory)

    @classmethod
    def resume(cls, directory: Path, fingerprint: Mapping[str, JsonValue]) -> tuple[Self, RunDocument]:
        """An existing run, to go on with; refused, field by field, if it measured something else."""
        store = cls.open(directory)
        require_equal(store.load().fingerprint, fingerprint, str(directory))
        with storage_errors(directory):
            store._lock = _locked(directory)
        return store, store.load()

    @property
    def document_path(self) -> Path:
        return self.directory / "run.json"

    @property
    def merged(self) -> Path:
        return self.directory / "steps.parquet"

    @property
    def parts(self) -> Path:
        return self.directory / "steps"

    @property
    def server_log(self) -> Path:
        return self.directory / "server.log"

    @property
    def run_log(self) -> Path:
        return self.directory / "run.log"

    def load(self) -> RunDocument:
        """The document as it stands."""
        try:
            text = self.document_path.read_bytes()
        except OSError as error:
            raise UserError(f"{self.document_path}: {error.strerror}", _GIVE_A_RUN) from None
        return parse(text, str(self.document_path))

    def write(self, document: RunDocument) -> None:
        """Replace the document."""
        with replacing(self.document_path) as temporary:
            temporary.write_text(document.to_json() + "\n", encoding="utf-8")

    def append_repeat(self, key: RepeatKey, ranks: Sequence[RankSteps]) -> None:
        """Keep the steps of one cohort, all DP ranks; a key written again replaces what was kept before."""
        table = parquet.to_table(key, ranks)
        if table.num_rows:
            with storage_errors(self.parts):
                self.parts.mkdir(exist_ok=True)
            parquet.write(self.parts / f"p{key.point}-l{key.launch}-r{key.repeat}.parquet", [table])

    def repeats(self) -> Iterator[tuple[RepeatKey, tuple[RankSteps, ...]]]:
        """Every cohort that has steps, one in memory at a time."""
        for key, table in self._cohorts():
            yield key, parquet.to_ranks(table)

    def finish(self, document: RunDocument) -> None:
        """Write the last document and merge the steps that it mentions into one file."""
        self.write(document)
        kept = set(repeat_keys(document))
        parquet.write(self.merged, (table for key, table in self._cohorts() if key in kept))
        with storage_errors(self.parts):
            for part in self.parts.glob("*.parquet"):
                part.unlink()
            if self.parts.is_dir() and not any(self.parts.iterdir()):
                self.parts.rmdir()

    def is_written(self) -> bool:
        """Whether a process, this one or another, holds the lock: the run is being measured."""
        descriptor = os.open(self.directory, os.O_RDONLY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:  # NOTE: a network file system without locks does not tell
            return False
        finally:
            os.close(descriptor)
        return False

    def close(self) -> None:
        """Let another process write. The end of this one does the same."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _cohorts(self) -> Iterator[tuple[RepeatKey, pa.Table]]:
        """Those merged by an earlier end of the run, unless measured anew, then those of the parts."""
        parts = {
            parquet.key_of(table, path): path for path in self._part_paths() for table in parquet.read(path)
        }
        if self.merged.exists() or not self.parts.is_dir():
            for table in parquet.read(self.merged):
                key = parquet.key_of(table, self.merged)
                if key not in parts:
                    yield key, table
        for key in sorted(parts):
            for table in parquet.read(parts[key]):
                yield key, table

    def _part_paths(self) -> list[Path]:
        return sorted(self.parts.glob("*.parquet"))


def repeat_keys(document: RunDocument) -> Iterator[RepeatKey]:
    """The cohorts that a document speaks of, in its order."""
    for point in document.points:
        for detail in point.repeat_details:
            yield RepeatKey(point.point, point.batch_size, point.context_len, detail.launch, detail.repeat)


def _locked(directory: Path) -> int:
    """Lock the directory itself; the kernel releases it when the process ends, however it ends."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise UserError(
            f"{directory}: another decodebench is writing to it", "wait until it has ended"
        ) from None
    except OSError:
        pass  # NOTE: some network file systems have no locks; go without
    return descriptor
