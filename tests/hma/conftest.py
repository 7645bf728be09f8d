"""Connectors that are only source files: importing one would end the test run, reading it must not."""

from pathlib import Path

import pytest

BASES = "from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorBase_V1, SupportsHMA\n"
MULTI = "from vllm.distributed.kv_transfer.kv_connector.v1.multi_connector import MultiConnector as Several\n"

CONNECTORS = f"""
{BASES}{MULTI}
raise SystemExit("this module was imported")

class Yes(KVConnectorBase_V1, SupportsHMA):
    def request_finished_all_groups(self, request, block_ids):
        return False, None

class No(KVConnectorBase_V1):
    def request_finished(self, request, block_ids):
        return False, None

class DuckTyped(KVConnectorBase_V1):
    def request_finished_all_groups(self, request, block_ids):
        return False, None

class SingleGroup(KVConnectorBase_V1, SupportsHMA):
    def request_finished(self, request, block_ids):
        return False, None

class Stub(KVConnectorBase_V1, SupportsHMA):
    def request_finished_all_groups(self, request, block_ids):
        '''Not yet.'''
        raise NotImplementedError

class Fleet(Several):
    pass

class MultiConnector(Yes):
    pass
"""


@pytest.fixture
def connectors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a module with the connectors above."""
    (tmp_path / "their_connectors.py").write_text(CONNECTORS)
    monkeypatch.syspath_prepend(str(tmp_path))
    return "their_connectors"
