"""What a point, or one repeat of it, came to."""

from enum import StrEnum


class Status(StrEnum):
    VALID = "valid"
    INVALID = "invalid"  # its steps or its fill are not what was asked; the reason says how
    DOES_NOT_FIT = "does_not_fit"  # too few blocks, seats or tokens a step, or no window fits
    UNVERIFIED = "unverified"  # the server does not run our connector: no step log, so no figures
    FAILED = "failed"  # the engine or a request of the cohort ended in an error
    NOT_RUN = "not_run"  # the time budget or an interrupt came first
