"""Ours beside another connector that stores and loads, in both orders, on a real server."""

import asyncio
import json
from pathlib import Path

import pytest

from tests.e2e.client import judge, talk
from tests.e2e.command import Command
from tests.e2e.servers import SMALL_POOL, ServerKind, on

pytest.importorskip("vllm", reason="runs vLLM's own server")
pytestmark = pytest.mark.engine

ROOT = Path(__file__).parents[2]
ENGINE_ID = "disk-engine"
ARGS = (*SMALL_POOL, "--no-enable-prefix-caching")  # what is loaded, the other connector loaded


def sibling(name="DiskConnector", directory="DIRECTORY", **fields):
    module = "tests.e2e.disk_connector"
    extra = {"directory": directory}
    named = {"kv_connector": name, "kv_connector_module_path": module, "kv_role": "kv_both"}
    return json.dumps(named | {"kv_connector_extra_config": extra} | fields)


OURS_FIRST = ServerKind("tiny-gemma3-then-disk", "tiny-gemma3", ARGS, after=(sibling(engine_id=ENGINE_ID),))
DISK_FIRST = ServerKind("tiny-gemma3-after-disk", "tiny-gemma3", ARGS, before=(sibling(),))
WITHOUT_HMA = ServerKind(
    "tiny-gemma3-plain-disk", "tiny-gemma3", ARGS, after=(sibling("PlainDiskConnector"),)
)


@pytest.fixture(autouse=True)
def importable(monkeypatch):
    """The engine's processes find the other connector's module."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))


def loaded_tokens(reply):
    return reply.body["kv_transfer_params"]["disk"]["loaded_tokens"]


def tokens(reply):
    return reply.body["choices"][0]["token_ids"]


def is_exact(outcome):
    return outcome.fault is None and outcome.judged.verdict.rule in (None, "drifting")


def files_under(directory):
    return {path.name for path in directory.rglob("*.pt")}


async def until_stored(directory, number):
    """Files are written after the answers have left."""
    async with asyncio.timeout(60):
        while len(files_under(directory)) < number:
            await asyncio.sleep(0.05)


async def prefilled(api, prompt, salt, max_tokens=1):
    """A real prefill, which the other connector saves."""
    asked = {"fill": False}
    return await api.complete(prompt, max_tokens, asked, cache_salt=salt, return_token_ids=True)


async def continued_cohort(api, server, name, plan, size):
    """A cohort whose members' prompts, all but the last token, were prefilled, so that the disk has them."""
    prompts = [server.prompt(plan.prompt_len) for _ in range(size)]
    for prompt in prompts:
        await prefilled(api, prompt[:-1], name)
    asked = {"cohort": {"id": name, "size": size, "timeout_s": 200}}
    members = [api.complete(prompt, plan.max_tokens, asked, cache_salt=name) for prompt in prompts]
    return await asyncio.gather(*members)


@on(OURS_FIRST)
def test_the_engine_says_which_connectors_it_asks_in_which_order(server):
    said = server.engine.first
    assert said["multi_connector"] is True
    assert said["connectors"] == ["DecodeBenchConnector", "DiskConnector"]
    assert said["hybrid_kv_cache_manager"] is True
    assert len(said["groups"]) == 6


@on(OURS_FIRST, WITHOUT_HMA)
def test_the_other_connector_loads_what_it_saved_and_every_token_is_the_same(server):
    """Whole pages of every group came back: decoding goes on as if the prompt had just been prefilled."""

    async def case(api):
        prompt = server.prompt(1_500)
        straight = await prefilled(api, prompt, "control", max_tokens=17)
        first = await prefilled(api, prompt, "saved")
        asked = {"fill": False}
        resumed = await api.complete(
            [*prompt, *tokens(first)], 16, asked, cache_salt="saved", return_token_ids=True
        )
        return straight, first, resumed

    straight, first, resumed = talk(server, case)
    assert (loaded_tokens(straight), loaded_tokens(first), loaded_tokens(resumed)) == (0, 0, 1_500)
    assert [*tokens(first), *tokens(resumed)] == tokens(straight)


@on(OURS_FIRST, DISK_FIRST, WITHOUT_HMA)
def test_a_cohort_is_exact_beside_a_connector_that_has_none_of_it(server):
    plan, size = server.plan(2_000), 4
    before = len(files_under(server.directory))

    async def case(api):
        replies = await asyncio.gather(*api.cohort("unknown", size, plan.prompt_len, plan.max_tokens))
        await until_stored(server.directory, before + size)  # it stores whatever it sees, ours too
        return replies

    replies = talk(server, case)
    assert is_exact(judge(server, plan, size, replies))
    assert [loaded_tokens(reply) for reply in replies] == [0] * size


@on(OURS_FIRST, WITHOUT_HMA)
def test_ours_wins_over_a_connector_behind_it_that_has_every_token(server):
    plan, size = server.plan(1_000), 3
    replies = talk(server, lambda api: continued_cohort(api, server, "both", plan, size))
    assert is_exact(judge(server, plan, size, replies))
    assert [reply.said["cohort"]["filled"] for reply in replies] == [size] * size
    assert [loaded_tokens(reply) for reply in replies] == [0] * size


@on(DISK_FIRST)
def test_a_connector_before_ours_that_has_the_tokens_wins_and_the_point_is_invalid(server):
    assert server.engine.first["connectors"] == ["DiskConnector", "DecodeBenchConnector"]
    plan, size = server.plan(1_000), 3
    replies = talk(server, lambda api: continued_cohort(api, server, "both", plan, size))
    assert [loaded_tokens(reply) for reply in replies] == [plan.prompt_len - 1] * size
    assert "list this connector first" in judge(server, plan, size, replies).fault
    assert [reply.output_tokens for reply in replies] == [plan.max_tokens] * size


@on(OURS_FIRST)
def test_the_engine_id_of_a_sibling_is_in_force_in_it(server):
    assert [path.name for path in server.directory.iterdir() if path.is_dir()] == [ENGINE_ID]


@on(WITHOUT_HMA)
def test_without_support_of_a_sibling_the_hybrid_manager_is_off(server):
    assert server.engine.first["hybrid_kv_cache_manager"] is False
    assert len(server.engine.first["groups"]) == 1


def test_run_with_a_sibling_measures_and_records_it(tmp_path):
    sized = ("--batch-size", "2", "--context-len", "500", "--window-steps", "8", "--max-repeats", "5")
    other = sibling(directory=str(tmp_path / "disk"), engine_id=ENGINE_ID)
    command = Command(tmp_path, "run", *sized, "--max-time", "4m", "--with-connector", other, "--json")
    try:
        assert command.wait() == 0, command.stderr
    finally:
        command.clean_up()
    point, engine = command.document["points"][0], command.document["engine"]
    assert (point["status"], point["repeats"]) == ("valid", 5)
    assert engine["connectors"] == ["DecodeBenchConnector", "DiskConnector"]
    assert point["provenance"]["connectors"] == engine["connectors"]
    assert engine["hma"] is True
    assert engine["hma_reason"] == "every child of MultiConnector supports the hybrid KV cache manager"
    assert "may store what this server computes" in command.stderr
    assert files_under(tmp_path / "disk" / ENGINE_ID)


def test_a_sibling_that_makes_the_model_impossible_is_refused_before_anything_starts(tmp_path):
    other = sibling("PlainDiskConnector", directory=str(tmp_path))
    command = Command(tmp_path, "run", "tiny-granite", "--with-connector", other)
    assert command.wait() == 2
    assert "PlainDiskConnector does not support the hybrid KV cache manager" in command.stderr
    assert "connectors[1]" in command.stderr
    assert not command.out.exists()
