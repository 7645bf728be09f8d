"""What the donors of a run were and what making them cost, as `run.json` holds it."""

from typing import Literal

from decodebench.results.model import Nanoseconds, Record


class DonorPhase(Record):
    """The donors of one server start. Their cost lies before the first cohort; no measurement contains it."""

    launch: int = 0
    """Which server start of the run, from 0."""
    donors: int
    """Really prefilled prompts whose pages fill the requests, per data-parallel rank."""
    donor_len: int
    """Tokens of each."""
    seed: int
    """Draws their prompts, and which page of which donor fills a request."""
    source: Literal["random ids", "shipped text", "own text"]
    """What their prompts were made of."""
    tokens: int
    """Tokens that were prefilled for them, all data-parallel ranks together."""
    duration_ns: Nanoseconds
    """From the first donor's request until every worker held every donor."""
    bank_bytes: int
    """What the donors take of each worker's host memory."""
    one_a_request: bool
    """Whether the largest batch gets a donor for every request; otherwise its requests mix pages of all donors."""
