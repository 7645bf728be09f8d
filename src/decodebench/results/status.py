"""What a point, or one repeat of it, came to."""

from enum import StrEnum


class Status(StrEnum):
    VALID = "valid"
    INVALID = "invalid"  # something else ran inside the window; the reason says what
    DOES_NOT_FIT = "does_not_fit"  # the cohort needs more blocks (or seats, or tokens a step) than there are
    UNVERIFIED = "unverified"  # no step log from this server: client figures only, no step times
    FAILED = "failed"  # the engine or a request of the cohort ended in an error
    NOT_RUN = "not_run"  # the time budget or an interrupt came first
