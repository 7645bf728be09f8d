import logging

import pytest

pytest.importorskip("vllm", reason="the connector runs inside vLLM")

from tests.connector.engine import Engine


@pytest.fixture
def engine(tmp_path):
    """Builds engines: `engine(groups=..., num_blocks=...)`."""
    return lambda **kwargs: Engine(tmp_path / "model", **kwargs)


@pytest.fixture
def warnings_of_ours():
    """Messages that the connector logs, in order."""
    messages: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: messages.append(record.getMessage())
    logger = logging.getLogger("vllm.decodebench")
    logger.addHandler(handler)
    yield messages
    logger.removeHandler(handler)
