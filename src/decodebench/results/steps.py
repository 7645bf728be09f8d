"""The step log's columns: the one definition that connector, store and statistics share.

A row is one engine step of one DP rank's scheduler. Every value is an int; times are nanoseconds of the scheduler
process's monotonic clock, so they may be compared within one rank only.
"""

STEP_COLUMNS = (
    "step",  # connector's step number, from 0 at server start, empty steps included
    "scheduled_ns",  # when the step's metadata was built
    "done_ns",  # when the step's outputs came back to the scheduler; 0 = not yet known
    "num_reqs",  # requests with at least one scheduled token
    "decode_tokens",  # scheduled tokens of requests past their prompt's last token but one
    "prefill_tokens",  # all other scheduled tokens
    "foreign_reqs",  # scheduled requests outside the cohort that owns the log
    "preempted",  # requests preempted since the previous step
    "fills_in_flight",  # fills ordered and not yet reported done, at schedule time
    "gated",  # requests answered "ask later" in this step's admission scan
    "context_tokens",  # sum over scheduled requests of the KV tokens each reads
    "context_min",
    "context_max",
)

Steps = dict[str, list[int]]
"""The log of one cohort: every name of `STEP_COLUMNS` to a list, all of one length."""
