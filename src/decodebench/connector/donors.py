"""The donors of one scheduler: what the workers' banks hold, are about to hold, and may hold.

A donor is a request that asked to become one. Its life: asked (it waits or is prefilled) -> copying (it has finished,
its blocks are kept until every worker has copied them) -> held. Only a held donor fills others; a fill from one that is
on its way is asked to come later. Room is decided here and before the copy, because the donor's answer leaves
before it: every worker holds as many pages, and `page_bytes` is what they take of a worker's memory.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any

from decodebench.connector.metadata import DonorCopy, KeepReport
from decodebench.kv.blocks import GroupShape
from decodebench.kv.donors import DonorPages, TooShort, kept_pages, plan_copies
from decodebench.kv.writes import GroupWrites, Sources


class Unusable(Exception):
    """Why a request cannot be filled from the donors it names."""


class State(Enum):
    ASKED = auto()
    COPYING = auto()
    HELD = auto()
    FAILED = auto()


@dataclass(slots=True)
class Donor:
    id: str
    number: int  # the workers' name for it, never used twice
    request_id: str
    adapter: str | None = None  # LoRA adapter it was prefilled with
    state: State = State.ASKED
    num_tokens: int = 0
    pages: tuple[DonorPages, ...] = ()  # per group
    reports: list[KeepReport] = field(default_factory=list)
    error: str | None = None

    @property
    def page_counts(self) -> tuple[int, ...]:
        """Pages per group."""
        return tuple(group.count for group in self.pages)


class Donors:
    """Names, room and pages of the donors; what to order of the workers.

    Args:
        shapes: how each KV cache group maps tokens to blocks.
        groups: ids of the groups that are filled, hence kept.
        page_bytes: bytes of one block of each group in one worker, until workers tell better (`GroupLayers`).
        limit_bytes: what the bank of one worker may hold.
        num_workers: workers that each report every copy.
    """

    def __init__(
        self,
        shapes: Sequence[GroupShape],
        groups: Sequence[int],
        page_bytes: Sequence[int],
        limit_bytes: int,
        num_workers: int,
    ) -> None:
        self._shapes = shapes
        self._groups = frozenset(groups)
        self._page_bytes = page_bytes
        self._limit_bytes = limit_bytes
        self._num_workers = num_workers
        self._donors: dict[str, Donor] = {}
        self._of_request: dict[str, Donor] = {}  # asked, by the request that is to become one
        self._copying: dict[int, Donor] = {}  # by number; forgotten ones too
        self._copies: list[DonorCopy] = []
        self._drops: list[int] = []
        self._made = 0

    @property
    def used_bytes(self) -> int:
        """Of each worker's memory, by donors that are held or copied; forgotten ones until their copy has ended."""
        held = (donor for donor in self._donors.values() if donor.state is State.HELD)
        return sum(self._bytes_of(donor.page_counts) for donor in (*self._copying.values(), *held))

    def learn_page_bytes(self, page_bytes: Sequence[int]) -> None:
        """Bytes of one block of each group, as workers have them."""
        self._page_bytes = page_bytes

    def ask(self, donor_id: str, request_id: str, adapter: str | None = None) -> str | None:
        """A request, run with this LoRA adapter, asks to become a donor. Why it cannot, or None."""
        known = self._donors.get(donor_id)
        if known is not None and known.state is not State.FAILED:
            return f"donor {donor_id!r} exists already; give each donor its own id, or forget it first"
        self._made += 1
        donor = Donor(donor_id, self._made, request_id, adapter)
        self._donors[donor_id] = self._of_request[request_id] = donor
        return None

    def forget(self, ids: Sequence[str]) -> str | None:
        """Free donors. What was wrong with the list, or None; the others are freed all the same."""
        unknown = [donor_id for donor_id in ids if donor_id not in self._donors]
        for donor_id in ids:
            donor = self._donors.pop(donor_id, None)
            if donor is None:
                continue
            self._of_request.pop(donor.request_id, None)
            if donor.state is State.HELD:
                self._drops.append(donor.number)
        return f"forget: no donor {', '.join(map(repr, unknown[:8]))} is held here" if unknown else None

    def finish(
        self, request_id: str, block_ids: tuple[list[int], ...], num_tokens: int, aborted: bool
    ) -> tuple[Donor | None, str | None]:
        """A request that asked to become a donor is over. The donor whose pages are to be copied, or why there is none.

        A request that was not aborted has put out a token, so its prompt is computed.
        """
        donor = self._of_request.pop(request_id, None)
        if donor is None:
            return None, "not kept: this donor was forgotten before its prefill ended"
        kept = [
            kept_pages(shape, ids, num_tokens) if group in self._groups else (0, [])
            for group, (shape, ids) in enumerate(zip(self._shapes, block_ids, strict=True))
        ]
        num_bytes, free = self._bytes_of([len(ids) for _, ids in kept]), self._limit_bytes - self.used_bytes
        error = None
        if aborted:
            error = "not kept: it was aborted"
        elif num_bytes > free:
            error = (
                f"not kept: donor {donor.id!r} needs {num_bytes:,} bytes of each worker, and its bank has "
                f"{free:,} of {self._limit_bytes:,} free; forget other donors, send a "
                "shorter one, or raise donor_bank_gib in kv_connector_extra_config"
            )
        if error is not None:
            del self._donors[donor.id]
            return None, error
        donor.state, donor.num_tokens = State.COPYING, num_tokens
        donor.pages = tuple(DonorPages(donor.number, num_tokens, first, len(ids)) for first, ids in kept)
        self._copying[donor.number] = donor
        self._copies.append(DonorCopy(donor.number, request_id, tuple(ids for _, ids in kept)))
        return donor, None

    def take_orders(self) -> tuple[tuple[DonorCopy, ...], tuple[int, ...]]:
        """Copies and drops to send to the workers with this step; drops come first."""
        orders = tuple(self._copies), tuple(self._drops)
        self._copies, self._drops = [], []
        return orders

    def report(self, report: KeepReport) -> str | None:
        """A worker has copied a donor, or failed to. What went wrong, once every worker has reported."""
        donor = self._copying[report.donor]
        donor.reports.append(report)
        if len(donor.reports) < self._num_workers:
            return None
        del self._copying[report.donor]
        donor.error = self._verdict(donor)
        donor.state = State.HELD if donor.error is None else State.FAILED
        if donor.error is not None or self._donors.get(donor.id) is not donor:
            self._drops.append(donor.number)
        return donor.error

    def missing(self, ids: Sequence[str]) -> str | None:
        """Why a fill from these donors will never be possible, or None."""
        for donor_id in ids:
            donor = self._donors.get(donor_id)
            if donor is None:
                return (
                    f"donor {donor_id!r} is not held here (never prefilled on this server and data-parallel rank, "
                    "refused, or forgotten); send it first and read its answer"
                )
            if donor.error is not None:
                return donor.error
        return None

    def of_another_model(self, ids: Sequence[str], adapter: str | None) -> str | None:
        """Why these donors do not fill a request that runs with this LoRA adapter (None: the base model), or None."""
        for donor in filter(None, map(self._donors.get, ids)):
            if donor.adapter != adapter:
                return (
                    f"donor {donor.id!r} was prefilled with {_named(donor.adapter)}, this request runs with "
                    f"{_named(adapter)}; send a donor with the request's own model name"
                )
        return None

    def on_their_way(self, ids: Sequence[str]) -> bool:
        """Whether a fill from these donors must come later."""
        known = (self._donors.get(donor_id) for donor_id in ids)
        return any(donor is not None and donor.state in (State.ASKED, State.COPYING) for donor in known)

    def plan(
        self,
        ids: Sequence[str],
        seed: int,
        block_ids: tuple[list[int], ...],
        writes: Sequence[GroupWrites],
        total: int,
    ) -> tuple[tuple[GroupWrites, ...], tuple[Sources, ...]]:
        """The fill of `writes` from donors: per group what is written, and from which pages.

        Raises:
            Unusable: a donor is not held, or has no page for one of the blocks.
        """
        if reason := self.missing(ids):
            raise Unusable(reason)
        donors = [self._donors[donor_id] for donor_id in ids]
        if any(donor.state is not State.HELD for donor in donors):
            raise Unusable("a donor was forgotten and asked for anew while its cohort was admitted")
        planned = []
        for group, (shape, ids_of_group, each) in enumerate(
            zip(self._shapes, block_ids, writes, strict=True)
        ):
            pages = [donor.pages[group] for donor in donors]
            try:
                planned.append(plan_copies(shape, ids_of_group, each, total, pages, seed))
            except TooShort as reason:
                raise Unusable(
                    f"donors {', '.join(map(repr, ids[:4]))} are too short for a context of {total} tokens: {reason} "
                    f"(KV cache group {group}); send donors of at least {self.min_tokens} tokens"
                ) from None
        return tuple(each for each, _ in planned), tuple(sources for _, sources in planned)

    def answer(self, donor: Donor) -> dict[str, Any]:
        """What the response of a request says that was accepted as this donor."""
        return {
            "id": donor.id,
            "tokens": donor.num_tokens,
            "pages": list(donor.page_counts),
            "bytes": self._bytes_of(donor.page_counts),
        }

    def describe(self) -> dict[str, Any]:
        """The bank, in the description of the engine."""
        held = [donor for donor in self._donors.values() if donor.state is State.HELD]
        return {
            "limit_bytes": self._limit_bytes,
            "used_bytes": self.used_bytes,
            "page_bytes": list(self._page_bytes),
            "min_tokens": self.min_tokens,
            "donors": {donor.id: donor.num_tokens for donor in held},
        }

    @property
    def min_tokens(self) -> int:
        """A donor of so many tokens has a page for whatever a request of any length needs."""
        return max(
            (
                shape.window - 1 if shape.kind == "sliding_window" else shape.block_size
                for shape in self._shapes
                if shape.kind in ("full_attention", "sliding_window", "chunked_local")
            ),
            default=1,  # a model of states only
        )

    def _bytes_of(self, pages: Sequence[int]) -> int:
        """What so many pages of each group take."""
        return sum(size * count for size, count in zip(self._page_bytes, pages, strict=True))

    def _verdict(self, donor: Donor) -> str | None:
        expected = donor.page_counts
        for report in donor.reports:
            if report.error is not None:
                return f"donor {donor.id!r} could not be copied on worker {report.rank}: {report.error}"
            if report.pages != expected:
                return (
                    f"donor {donor.id!r}: worker {report.rank} copied {list(report.pages)} pages per group, "
                    f"the plan says {list(expected)}"
                )
        return None


def _named(adapter: str | None) -> str:
    return "the base model" if adapter is None else f"the adapter {adapter!r}"
