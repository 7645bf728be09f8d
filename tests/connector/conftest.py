import pytest

pytest.importorskip("vllm", reason="the connector runs inside vLLM")

from tests.connector.engine import Engine


@pytest.fixture
def engine(tmp_path):
    """Builds engines: `engine(groups=..., num_blocks=...)`."""
    return lambda **kwargs: Engine(tmp_path / "model", **kwargs)
