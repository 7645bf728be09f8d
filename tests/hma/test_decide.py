"""The cases H1 to H8: each verdict with its reason, the connector that forces it and what would change it."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from decodebench.hma import CannotTell, ModelFacts, TransferConfigError, Verdict, decide, supports_hma_config
from decodebench.hma.rules import ASK_OFF, ASK_ON

HYBRID = ModelFacts(off_error="1 state layer beside attention")
CHUNKED = ModelFacts(chunked_local=True)
V = "0.31"  # a version whose rules hold and which is not the installed one, so that the table answers


def one(name: str, module: str | None = None, **fields: Any) -> dict[str, Any]:
    path = {} if module is None else {"kv_connector_module_path": module}
    return {"kv_connector": name, "kv_role": "kv_both", **path, **fields}


def multi(*children: Any, name: str = "MultiConnector", **fields: Any) -> dict[str, Any]:
    return one(name, kv_connector_extra_config={"connectors": list(children)}, **fields)


A, B, C = (
    one("NixlConnector"),
    one("OffloadingConnector"),
    one("ExampleConnector"),
)  # with support, with, without


# H1: a single one


def test_no_connector_leaves_the_manager_on() -> None:
    assert decide(None, vllm_version=V).verdict is Verdict.ON


def test_a_connector_with_support_leaves_it_on() -> None:
    decision = decide(A, vllm_version=V)
    assert (decision.verdict, decision.path, decision.flag) == (Verdict.ON, None, ASK_OFF)
    assert supports_hma_config(A, vllm_version=V)


def test_a_connector_without_support_turns_it_off_and_is_named() -> None:
    decision = decide(C, vllm_version=V)
    assert (decision.verdict, decision.path) == (Verdict.OFF, "")
    assert "ExampleConnector" in decision.reason
    assert not supports_hma_config(C, vllm_version=V)


def test_ours_supports_it() -> None:
    ours = one("DecodeBenchConnector", "decodebench.connector")
    assert decide(ours, vllm_version=V).verdict is Verdict.ON
    assert decide(multi(ours, A), vllm_version=V).verdict is Verdict.ON


# H2: one inside another


def test_the_child_that_forces_it_off_is_named_by_its_path() -> None:
    decision = decide(multi(A, multi(B, C)), vllm_version=V)
    assert (decision.verdict, decision.path) == (Verdict.OFF, "connectors[1].connectors[1]")


@pytest.mark.parametrize("config", [multi(), one("MultiConnector"), multi(A, multi())])
def test_a_multi_connector_without_children_supports_nothing(config: dict[str, Any]) -> None:
    assert decide(config, vllm_version=V).verdict is Verdict.OFF
    assert not supports_hma_config(config, vllm_version=V)


def test_children_out_of_the_tree_count_like_others(connectors: str) -> None:
    assert decide(multi(one("Yes", connectors), A)).verdict is Verdict.ON
    assert decide(multi(one("Yes", connectors), one("No", connectors))).path == "connectors[1]"


@pytest.mark.parametrize(
    "child", ["NixlConnector", {"kv_role": "kv_both"}, {"kv_connector": "NixlConnector"}]
)
def test_a_malformed_child_is_an_error_with_its_path(child: Any) -> None:
    decision = decide(multi(A, multi(B, child)), vllm_version=V)
    assert (decision.verdict, decision.path) == (Verdict.ERROR, "connectors[1].connectors[1]")
    with pytest.raises(TransferConfigError):
        supports_hma_config(multi(A, multi(B, child)), vllm_version=V)


def test_a_class_that_is_not_in_its_module_is_an_error(connectors: str) -> None:
    decision = decide(multi(A, one("Missing", connectors)))
    assert (decision.verdict, decision.path) == (Verdict.ERROR, "connectors[1]")


# H3: a subclass of MultiConnector, known by its class


def test_the_children_of_a_subclass_of_multi_connector_decide(connectors: str) -> None:
    fleet = multi(A, one("No", connectors), name="Fleet", kv_connector_module_path=connectors)
    decision = decide(fleet)
    assert (decision.verdict, decision.path) == (Verdict.OFF, "connectors[1]")
    assert decision.serve_flags == (ASK_OFF,)  # by itself the engine goes by the name, turns it on and dies
    assert decide(multi(A, name="Fleet", kv_connector_module_path=connectors)).verdict is Verdict.ON


def test_a_connector_that_is_only_named_multi_connector_is_off(connectors: str) -> None:
    assert decide(one("MultiConnector", connectors)).verdict is Verdict.OFF


# H4: a model that needs the manager


@pytest.mark.parametrize("asked", [None, True, False])
def test_a_model_with_state_layers_is_impossible_without_support(asked: bool | None) -> None:
    decision = decide(C, asked=asked, model=HYBRID, vllm_version=V)
    assert decision.verdict is Verdict.IMPOSSIBLE


def test_impossible_names_the_connectors_that_would_do() -> None:
    decision = decide(C, model=HYBRID, vllm_version=V)
    assert "impossible with this connector" in decision.reason
    assert "NixlConnector" in decision.reason


def test_switching_the_manager_off_is_impossible_for_a_model_that_needs_it() -> None:
    assert decide(A, asked=False, model=HYBRID, vllm_version=V).verdict is Verdict.IMPOSSIBLE
    assert decide(None, asked=False, model=HYBRID, vllm_version=V).verdict is Verdict.IMPOSSIBLE
    assert decide(A, model=HYBRID, vllm_version=V).verdict is Verdict.ON


def test_hisparse_with_the_manager_off_is_an_error() -> None:
    hisparse = one("HiSparseConnector")
    assert decide(hisparse, vllm_version=V).verdict is Verdict.ON
    assert decide(hisparse, asked=False, vllm_version=V).verdict is Verdict.ERROR
    assert decide(multi(hisparse, C), vllm_version=V).verdict is Verdict.ERROR


# H5: engine ids


def test_a_child_with_its_own_engine_id_is_fine_here_and_told_to_crash_the_engine() -> None:
    decision = decide(multi(A, one("OffloadingConnector", engine_id="F"), engine_id="E"), vllm_version="0.32")
    assert decision.verdict is Verdict.ON
    (warning,) = decision.warnings
    assert "connectors[1]" in warning
    assert "TypeError" in warning
    assert decide(multi(A, B, engine_id="E"), vllm_version="0.32").warnings == ()


def test_the_same_engine_id_twice_is_reported() -> None:
    twice = multi(
        one("NixlConnector", engine_id="F"), one("OffloadingConnector", engine_id="F"), engine_id="E"
    )
    assert any("'F' that connectors[0] has" in warning for warning in decide(twice, vllm_version=V).warnings)
    same = multi(one("NixlConnector", engine_id="E"), engine_id="E")
    assert any("'E' that the parent has" in warning for warning in decide(same, vllm_version=V).warnings)


# H6: support declared, the hook for all groups not implemented


@pytest.mark.parametrize("name", ["SingleGroup", "Stub"])
def test_a_declared_support_without_its_hook_is_told_apart(connectors: str, name: str) -> None:
    decision = decide(multi(A, one(name, connectors)))
    assert (decision.verdict, decision.path) == (Verdict.ERROR, "connectors[1]")
    assert "request_finished_all_groups" in decision.reason


# H7: chunked local attention


def test_chunked_local_attention_is_off_by_default_and_says_what_allows_it() -> None:
    decision = decide(None, model=CHUNKED, vllm_version=V)
    assert decision.verdict is Verdict.OFF
    assert "VLLM_ALLOW_CHUNKED_LOCAL_ATTN_WITH_HYBRID_KV_CACHE=1" in (decision.flag or "")
    assert decide(None, model=CHUNKED, allow_chunked=True, vllm_version=V).verdict is Verdict.ON
    assert decide(None, model=CHUNKED, asked=True, vllm_version=V).verdict is Verdict.ERROR


def test_a_drafter_forbids_it_with_chunked_local_attention_only() -> None:
    drafted = ModelFacts(chunked_local=True, drafter=True)
    assert decide(None, model=drafted, allow_chunked=True, vllm_version=V).verdict is Verdict.OFF
    assert decide(None, model=ModelFacts(drafter=True), vllm_version=V).verdict is Verdict.ON


# H8: cannot tell


def test_a_module_that_is_not_here_is_not_a_no() -> None:
    away = one("Theirs", "somewhere.else_entirely")
    decision = decide(multi(A, away))
    assert (decision.verdict, decision.path) == (Verdict.CANNOT_TELL, "connectors[1]")
    with pytest.raises(CannotTell, match=r"connectors\[1\]"):
        supports_hma_config(multi(A, away))


def test_one_no_is_enough_whatever_else_cannot_be_told() -> None:
    assert decide(multi(one("Theirs", "somewhere.else_entirely"), C), vllm_version=V).verdict is Verdict.OFF


def test_switched_off_by_the_user_needs_no_knowledge_of_the_connector() -> None:
    assert decide(one("Theirs", "somewhere.else_entirely"), asked=False).verdict is Verdict.OFF


def test_code_named_in_a_config_runs_only_when_allowed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark = tmp_path / "ran"
    (tmp_path / "marks_itself.py").write_text(f"open({str(mark)!r}, 'w').close()\nclass Theirs: ...\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    config = one("Theirs", "marks_itself")
    assert decide(config).verdict is Verdict.OFF
    assert not mark.exists()
    assert decide(config, allow_import=True).verdict is Verdict.OFF
    assert mark.exists()
    sys.modules.pop("marks_itself")


def test_a_module_that_fails_to_import_cannot_be_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "fails.py").write_text("raise ValueError('no driver')\nclass Theirs: ...\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    decision = decide(one("Theirs", "fails"), allow_import=True)
    assert decision.verdict is Verdict.CANNOT_TELL
    assert "no driver" in decision.reason


# versions


def test_before_the_default_changed_the_flag_must_be_given() -> None:
    decision = decide(multi(A, B), vllm_version="0.21")
    assert (decision.verdict, decision.flag, decision.serve_flags) == (Verdict.OFF, ASK_ON, (ASK_ON,))
    assert decide(multi(A, B), vllm_version="0.21", asked=True).verdict is Verdict.ON
    assert decide(multi(A, B), vllm_version="0.22").verdict is Verdict.ON


def test_a_version_that_looks_only_one_level_deep_is_told_to_turn_it_off() -> None:
    nested = multi(A, multi(B, C))
    assert decide(nested, vllm_version="0.22").serve_flags == (ASK_OFF,)
    assert decide(nested, vllm_version="0.23").serve_flags == ()


def test_a_platform_without_support_decides_alone() -> None:
    assert decide(A, vllm_version=V, platform_supports=False).verdict is Verdict.OFF
    assert decide(A, vllm_version=V, platform_supports=False, asked=True).verdict is Verdict.ERROR


def test_asked_on_without_support_is_an_error() -> None:
    decision = decide(multi(A, C), asked=True, vllm_version=V)
    assert (decision.verdict, decision.path) == (Verdict.ERROR, "connectors[1]")


def test_a_version_newer_than_the_newest_known_is_told_as_assumed() -> None:
    assert decide(A, vllm_version="0.99").assumed
    assert not decide(A, vllm_version=V).assumed


def test_neither_vllm_nor_torch_is_needed_or_imported() -> None:
    code = (
        "import sys, json; from decodebench.hma import decide;"
        "decision = decide(sys.argv[1]);"
        "imported = [m for m in ('vllm', 'torch', 'numpy') if m in sys.modules];"
        "print(json.dumps([decision.verdict, decision.assumed, imported]))"
    )
    source = str(Path(__file__).parents[2] / "src")
    command = [
        sys.executable,
        "-S",
        "-c",
        code,
        json.dumps(multi(A, B)),
    ]  # -S: no site-packages, so no vLLM to find
    done = subprocess.run(
        command, env={"PYTHONPATH": source}, capture_output=True, text=True, check=True, timeout=60
    )
    verdict, assumed, imported = json.loads(done.stdout)
    assert verdict == "on"
    assert "newest known" in assumed[0]
    assert imported == []
