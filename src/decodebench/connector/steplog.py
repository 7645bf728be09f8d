"""The step log: what every engine step computed and when its outputs came back, seen from inside the scheduler.

This is the measurement. A step's composition is known when its metadata is built, its completion when its outputs
return; both carry the step's number. Client, network and tokenizer are not in it.

The hook runs in the engine's critical path: a step whose requests are all known to be decoding is classified without a
Python loop over requests.
"""

from collections.abc import Collection
from typing import TYPE_CHECKING

from decodebench.connector.trace import Trace
from decodebench.results.steps import STEP_COLUMNS, Steps

if TYPE_CHECKING:
    from vllm.v1.core.sched.output import SchedulerOutput

MAX_ROWS = 1 << 16
"""Rows kept for one response; a longer cohort's log is cut there (and says so by being shorter than its output)."""

_DONE = STEP_COLUMNS.index("done_ns")


class Composition:
    """Tells decode from prefill tokens, step by step.

    A scheduled token is a decode token iff its request had computed at least prompt length - 1 tokens before the step.
    """

    def __init__(self) -> None:
        self._prompt_len: dict[str, int] = {}
        self._decoding: set[str] = set()
        self._steady: list[str] = []  # of the last step that only decoded members of the cohort, in its order
        self._contexts = (0, 0, 0)  # of the last step

    def add(self, request_id: str, prompt_len: int) -> None:
        self._prompt_len[request_id] = prompt_len

    def remove(self, request_id: str) -> None:
        self._prompt_len.pop(request_id, None)
        self._decoding.discard(request_id)
        self._steady = []

    def row(
        self,
        step: int,
        now_ns: int,
        output: "SchedulerOutput",
        members: Collection[str],
        fills_in_flight: int,
        gated: int,
    ) -> list[int]:
        """A step's line of the log, in the order of STEP_COLUMNS; `members` are those of the measured cohort."""
        scheduled = output.num_scheduled_tokens
        if self._goes_on(output):
            prefill = foreign = 0
            total, least, most = self._contexts
            self._contexts = (total + len(scheduled), least + 1, most + 1)
        else:
            prefill, foreign = self._classify(output, members)
            self._contexts = contexts(output)
        return [
            step,
            now_ns,
            0,
            len(scheduled),
            output.total_num_scheduled_tokens - prefill,
            prefill,
            foreign,
            len(output.preempted_req_ids or ()),
            fills_in_flight,
            gated,
            *self._contexts,
        ]

    def _goes_on(self, output: "SchedulerOutput") -> bool:
        """Whether this step decodes one token of the same requests as the last one, which were the cohort's.

        That is every step of a window, and what keeps the hook cheap at large batches: the engine keeps its running
        requests in order, and comparing two lists of the same string objects reads none of the strings. A request that
        had one token scheduled reads one more in the next step, so the contexts need not be read either.
        """
        cached = output.scheduled_cached_reqs
        return (
            bool(self._steady)
            and not output.scheduled_new_reqs
            and not output.preempted_req_ids
            and output.total_num_scheduled_tokens == len(self._steady)
            and cached.req_ids == self._steady
        )

    def _classify(self, output: "SchedulerOutput", members: Collection[str]) -> tuple[int, int]:
        """Prefill tokens, and requests outside of `members`, of one step."""
        scheduled = output.num_scheduled_tokens
        prefill = self.prefill_tokens(output)
        foreign = sum(request_id not in members for request_id in scheduled)
        pure = not prefill and not foreign and output.total_num_scheduled_tokens == len(scheduled)
        self._steady = (
            list(output.scheduled_cached_reqs.req_ids) if pure and not output.scheduled_new_reqs else []
        )
        return prefill, foreign

    def prefill_tokens(self, output: "SchedulerOutput") -> int:
        scheduled = output.num_scheduled_tokens
        if output.preempted_req_ids:
            self._decoding -= output.preempted_req_ids
        unknown = scheduled.keys() - self._decoding
        if not unknown:
            return 0
        computed = computed_before(output)
        tokens = 0
        for request_id in unknown:
            if computed[request_id] >= self._prompt_len.get(request_id, 0) - 1:
                self._decoding.add(request_id)
            else:
                tokens += scheduled[request_id]
        return tokens


def computed_before(output: "SchedulerOutput") -> dict[str, int]:
    """Tokens each scheduled request had computed before the step."""
    cached = output.scheduled_cached_reqs
    computed = dict(zip(cached.req_ids, cached.num_computed_tokens, strict=True))
    computed.update((new.req_id, new.num_computed_tokens) for new in output.scheduled_new_reqs)
    return computed


def contexts(output: "SchedulerOutput") -> tuple[int, int, int]:
    """Sum, least and most of the KV tokens that the scheduled requests read in the step."""
    scheduled = output.num_scheduled_tokens
    if not scheduled:
        return 0, 0, 0
    computed = output.scheduled_cached_reqs.num_computed_tokens
    if not output.scheduled_new_reqs and output.total_num_scheduled_tokens == len(scheduled):
        return sum(computed) + len(scheduled), min(computed) + 1, max(computed) + 1
    each = [before + scheduled[request_id] for request_id, before in computed_before(output).items()]
    return sum(each), min(each), max(each)


class StepLog:
    """Rows of the cohort that is measured, and, with a trace file, of every step."""

    def __init__(self, trace: Trace | None) -> None:
        self._rows: list[list[int]] | None = None  # None: nobody measures
        self._by_step: dict[int, list[int]] = {}  # rows whose outputs have not come back
        self._trace = trace

    @property
    def wanted(self) -> bool:
        return self._rows is not None or self._trace is not None

    def start(self) -> None:
        self._rows = []

    def stop(self) -> None:
        self._rows = None

    def scheduled(self, row: list[int]) -> None:
        """A step was scheduled; `row` has a value for every column, `done_ns` 0."""
        self._by_step[row[0]] = row
        if self._rows is not None and len(self._rows) < MAX_ROWS:
            self._rows.append(row)

    def completed(self, step: int, now_ns: int) -> None:
        row = self._by_step.pop(step, None)
        if row is None:
            return
        row[_DONE] = now_ns
        if self._trace is not None:
            self._trace.write(row)

    def take(self) -> Steps:
        """The measured cohort's rows, column by column; the log stops."""
        rows, self._rows = self._rows or [], None
        columns = zip(*rows, strict=True) if rows else ((),) * len(STEP_COLUMNS)
        return {name: list(values) for name, values in zip(STEP_COLUMNS, columns, strict=True)}

    def close(self) -> None:
        if self._trace is not None:
            self._trace.close()
            self._trace = None
