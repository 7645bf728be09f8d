"""Which decode steps of a cohort are measured: prompt length, warm-up, slack and window length, before anything runs.

Decode step k of a request (k = 0 processes the last prompt token) reads `prompt_len + k` KV tokens. So the
prompt is made shorter than the asked context by the warm-up and half a window, and the window's middle step
reads the asked context:

    step      0 ......... warmup ................. warmup + length ........ + slack ... + tail
    context   prompt_len  |<- window, if the warm-up is over: centred on the context ->|
                          |<- slack ->| a start that MSER-5 may choose instead

How long a window? Longer averages more steps and more of the periods at which block tables grow or
compressors run; shorter costs less (a repeat costs warm-up + slack + length + tail steps, about 40 of them
not measured) and holds the context closer to the asked one. The rule: about `window_steps` (64), never more
than max(32, 5 % of the context), a whole multiple of every period that allows it with at most four times
`window_steps`. A period P left out costs an error of at most one of its peaks in a window, about 1 / P of its
work.

    >>> WindowPlan.of(4096, max_model_len=8192, periods=(16, 128)).length
    128
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import lcm
from typing import Self

MIN_WARMUP_STEPS = 16
MIN_PROMPT = 2
"""Tokens: a prompt of one leaves nothing to fill."""
SLACK_STEPS = 20
"""Four batches of MSER-5: the latest start of the window, counted from the end of the warm-up."""
MIN_WINDOW_STEPS = 8
WINDOW_STEPS = 64
LONGEST = 4
"""A window grows to at most this many times `window_steps` to hold whole periods."""


class PlanError(ValueError):
    """No window fits the asked context; the message names the field, the value and the next step."""


@dataclass(frozen=True, slots=True)
class WindowPlan:
    """The steps of one cohort, counted from its first decode step. All lengths in steps; one step is one token."""

    context: int  # asked
    prompt_len: int
    warmup_steps: int
    slack_steps: int
    length: int
    tail_steps: int
    max_model_len: int
    left_out: tuple[int, ...] = ()  # periods of which `length` is not a whole multiple
    lead: int = (
        0  # of really prefilled requests: tokens that they have put out, in the mean, in the first step
    )

    @classmethod
    def of(
        cls,
        context: int,
        *,
        max_model_len: int,
        periods: Sequence[int] = (),
        batches_in_flight: int = 1,
        window_steps: int = WINDOW_STEPS,
    ) -> Self:
        """Plan a window centred on `context`, moved down at `max_model_len` and up where the prompt would be too short.

        `periods`: the groups' block sizes and compress ratios, in tokens. `batches_in_flight`: batches the
        engine runs ahead (1, 2 with async scheduling, or the pipeline's depth); the last ones are never seen
        finishing, hence the tail.
        """
        _check(context, max_model_len, periods, batches_in_flight, window_steps)
        length, left_out = _length(context, sorted(set(periods)), window_steps)
        warmup = max(MIN_WARMUP_STEPS, batches_in_flight)
        tail = batches_in_flight + 1
        output = warmup + SLACK_STEPS + length + tail
        if MIN_PROMPT + output > max_model_len:
            raise PlanError(
                f"max_model_len {max_model_len} is too short for a window: {MIN_PROMPT} prompt tokens and {warmup}"
                f" steps of warm-up, {SLACK_STEPS} of slack, {length} measured and {tail} to finish make"
                f" {MIN_PROMPT + output}; raise --max-model-len or lower --window-steps"
            )
        centred = context - warmup - length // 2
        prompt_len = max(MIN_PROMPT, min(centred, max_model_len - output))
        return cls(context, prompt_len, warmup, SLACK_STEPS, length, tail, max_model_len, left_out)

    @property
    def max_tokens(self) -> int:
        """Output tokens to ask of every request: one a step."""
        return self.last_steps + self.tail_steps

    @property
    def last_steps(self) -> int:
        """Steps that the latest possible window ends after."""
        return self.warmup_steps + self.slack_steps + self.length

    @property
    def window_context(self) -> float:
        """Mean context of the window that starts right after the warm-up."""
        return self.prompt_len + self.warmup_steps + (self.length - 1) / 2

    @property
    def moved(self) -> int:
        """Tokens by which the window lies above (+) or below (-) where it would be centred on the asked context."""
        return self.prompt_len + self.warmup_steps + self.length // 2 - self.context

    @property
    def note(self) -> str | None:
        """What a reader of the result must know about the window, or None when it is centred and whole."""
        notes = []
        if self.moved < 0:
            notes.append(
                f"moved down by {-self.moved} tokens to end within max_model_len {self.max_model_len}"
            )
        if self.moved > 0:
            notes.append(f"moved up by {self.moved} tokens: the warm-up comes before it")
        if self.left_out:
            periods = ", ".join(map(str, self.left_out))
            notes.append(f"{self.length} steps are no whole multiple of the period(s) {periods}")
        return "; ".join(notes) or None


def _length(context: int, periods: list[int], window_steps: int) -> tuple[int, tuple[int, ...]]:
    """The window's length and the periods it does not hold whole.

    Periods are taken from the shortest on while their common multiple fits, so that the frequent events are
    whole.
    """
    limit = max(32, context // 20)
    longest = min(limit, LONGEST * window_steps)
    multiple = 1
    for period in periods:
        if lcm(multiple, period) <= longest:
            multiple = lcm(multiple, period)
    wanted = min(window_steps, limit)
    length = -(-wanted // multiple) * multiple
    if length > longest:
        length -= multiple
    return length, tuple(period for period in periods if length % period)


def _check(
    context: int,
    max_model_len: int,
    periods: Sequence[int],
    batches_in_flight: int,
    window_steps: int,
) -> None:
    if not 1 <= context <= max_model_len:
        raise PlanError(
            f"context length {context} is outside 1 to max_model_len {max_model_len}: ask for less, or raise"
            " --max-model-len"
        )
    if window_steps < MIN_WINDOW_STEPS:
        raise PlanError(
            f"--window-steps {window_steps} is too short: at least {MIN_WINDOW_STEPS} steps are needed"
        )
    assert min(periods, default=1) >= 1, f"periods are positive numbers of tokens, not {list(periods)}"
    assert batches_in_flight >= 1, "an engine has a batch in flight"
