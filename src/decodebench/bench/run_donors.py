"""The donors of one server start of a run: made before its first cohort, taken away from a server that goes on."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from decodebench.bench.client import RequestFailed
from decodebench.bench.donor_prompts import Text
from decodebench.bench.donors import Prefilled, forget_donors, prefill_donors
from decodebench.bench.facts import EngineFacts
from decodebench.bench.point_state import PointState
from decodebench.bench.running import Running
from decodebench.bench.settings import Settings
from decodebench.bench.tokenizer import text_for


@contextmanager
def donors_for(
    running: Running,
    facts: EngineFacts,
    settings: Settings,
    states: Sequence[PointState],
    text: Text | None,
    *,
    launch: int,
    name: str,
) -> Iterator[Prefilled | None]:
    """Donors enough for all points that fit; None where the fill is not from donors, or nothing is to be filled."""
    points = [(state.point, state.plan.window) for state in states if state.plan.misfit is None]
    windows = [(point, window) for point, window in points if window is not None]
    if settings.donors is None or not windows:
        yield None
        return
    made = prefill_donors(
        running.target,
        facts,
        settings.donors,
        text=text,
        batch=max(point.batch_size for point, _ in windows),
        longest=max(window.prompt_len for _, window in windows),
        seed=settings.seed,
        launch=launch,
        name=name,
        check=running.check,
    )
    try:
        yield made
    finally:
        if not running.is_ours:
            with suppress(RequestFailed):
                forget_donors(running.target, made.donors, len(facts.ranks))


def texts_of(running: Running, settings: Settings, has_real_weights: bool) -> tuple[Text | None, Text | None]:
    """What really prefilled requests read, and what donors read: of one text, if both are needed, a half each."""
    if settings.donors is None and not settings.fidelity:
        return None, None
    asked = None if settings.donors is None else settings.donors.text
    text = text_for(running.target, asked, has_real_weights)
    return text.halves() if text is not None and settings.fidelity else (None, text)
