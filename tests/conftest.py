"""Settings that hold for every room's tests."""

from hypothesis import settings

# A deadline is a wall-clock assertion, and machines that run tests are shared.
settings.register_profile("decodebench", deadline=None)
settings.load_profile("decodebench")
