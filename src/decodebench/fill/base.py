"""The contract of a content: what a fill writes into pages."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence

from decodebench.fill.expected import Expected
from decodebench.fill.pages import LayerPages, Pages
from decodebench.fill.runs import PreparedWrites


class Content(ABC):
    """Puts bytes into pages. One object serves all layers of a worker and is used by one thread at a time.

    `prepare` is called once, at registration, with every layer that will be filled: whatever is drawn, encoded or
    allocated happens there. `write` is called once per fill and per distinct page storage of a group; it must not
    wait for the device, must not allocate in proportion to the blocks, and must leave every byte that the writes do
    not name as it is. Of the blocks named it owes every byte: rows get content that the layer's `PageContent` can be
    read back as, rows past the end and padding are zero.

    Pages copied from donors are no content: they depend on the request, and `donor.py` writes them.
    """

    @abstractmethod
    def prepare(self, layers: Sequence[LayerPages]) -> None:
        """Make ready to write `layers`."""

    @abstractmethod
    def expected(self, pages: Pages, writes: PreparedWrites) -> Iterator[Expected]:
        """What the last `write` into `pages`, which was of `writes`, must have left there; for audits."""

    @abstractmethod
    def write(self, pages: Pages, writes: PreparedWrites) -> int:
        """Write `writes` into `pages`, queued on the current stream; returns the bytes written."""
