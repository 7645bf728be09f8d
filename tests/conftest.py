"""Settings that hold for every room's tests."""

import signal

from hypothesis import settings

# A deadline is a wall-clock assertion, and machines that run tests are shared.
settings.register_profile("decodebench", deadline=None)
settings.load_profile("decodebench")


# Tests that are run in the background or under nohup inherit signals that are ignored, and so would all they start,
# whose answer to these signals is tested. What has a handler here has its default in a child.
for _signum in (signal.SIGINT, signal.SIGHUP):
    if signal.getsignal(_signum) is signal.SIG_IGN:
        signal.signal(_signum, lambda _signum, _frame: None)
