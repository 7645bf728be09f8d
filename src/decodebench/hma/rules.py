"""The engine's rules for the hybrid manager, version by version, applied to a tree of connectors.

Read in `config/vllm.py VllmConfig.__post_init__` and `distributed/kv_transfer/kv_connector/factory.py` of the versions
listed in hma/known.py:

- up to 0.21: any `--kv-transfer-config` switches the manager off; the user must ask for it;
- 0.22: on if the class supports it and, for the class named MultiConnector, its direct children do;
- from 0.23: on if `KVConnectorFactory.supports_hma_config` says so: recursive, but only through the connector *named*
  MultiConnector; a subclass under another name is asked for itself alone.
"""

from decodebench.hma.decision import Decision, ModelFacts, Verdict
from decodebench.hma.facts import ConnectorClass
from decodebench.hma.tree import Node, Support, support_of
from decodebench.hma.version import Version, show

ASK_ON = "--no-disable-hybrid-kv-cache-manager"
ASK_OFF = "--disable-hybrid-kv-cache-manager"
ALLOW_CHUNKED = "VLLM_ALLOW_CHUNKED_LOCAL_ATTN_WITH_HYBRID_KV_CACHE=1"

DEFAULT_CHANGED: Version = (0, 22)
"""The first version that asks the connector instead of switching the manager off for every transfer config."""


def engine_turns_on(root: Node, version: Version) -> bool:
    """Whether an engine from 0.22 on leaves the manager on by itself, as far as the transfer config goes."""
    if version == DEFAULT_CHANGED:
        children = root.children if root.config.name == "MultiConnector" else ()
        return _declares(root) and all(_declares(child) for child in children)
    return _supports_by_name(root)


def _supports_by_name(node: Node) -> bool:
    if node.config.name != "MultiConnector":
        return _declares(node)
    return bool(node.children) and all(_supports_by_name(child) for child in node.children)


def _declares(node: Node) -> bool:
    return isinstance(node.found, ConnectorClass) and node.found.declares_hma


def rule(
    root: Node | None,
    asked: bool | None,
    model: ModelFacts,
    version: Version,
    allow_chunked: bool,
    platform_supports: bool,
) -> Decision:
    """The engine's rules in the engine's order, before asking whether the model can live with the answer."""
    if asked is False:
        return _off("switched off by the user", flag=f"leave out {ASK_OFF}")
    blocked = _blocked(model, allow_chunked, platform_supports)
    if blocked is not None:
        if asked is None:
            return blocked
        return Decision(
            verdict=Verdict.ERROR,
            reason=f"asked on, but the engine refuses: {blocked.reason}",
            flag=blocked.flag,
        )
    if root is None:
        return Decision(verdict=Verdict.ON, reason="no connector is in the way", flag=ASK_OFF)
    support = support_of(root)
    if asked is None and version < DEFAULT_CHANGED:
        return _opt_in(support, version)
    if support.supported is None:
        return Decision(verdict=Verdict.CANNOT_TELL, reason=support.reason, path=support.path)
    if support.supported:
        return Decision(verdict=Verdict.ON, reason=support.reason, flag=ASK_OFF)
    if asked:
        return Decision(
            verdict=Verdict.ERROR,
            reason=f"asked on, but {support.reason}: every rank dies when the connector is built",
            path=support.path,
            flag=f"leave out {ASK_ON}",
        )
    return _off_by_connector(root, support, version)


def _blocked(model: ModelFacts, allow_chunked: bool, platform_supports: bool) -> Decision | None:
    """What keeps the manager off whatever the connector is."""
    if not platform_supports:
        return _off("this platform has no support for the hybrid KV cache manager")
    if model.chunked_local and model.drafter:
        return _off(
            "chunked local attention with a drafter is not supported with the hybrid KV cache manager"
        )
    if model.chunked_local and not allow_chunked:
        return _off(
            "the engine switches it off for chunked local attention, because decoding is slower with it there",
            flag=f"set {ALLOW_CHUNKED} in the environment",
        )
    return None


def _opt_in(support: Support, version: Version) -> Decision:
    why = f"vLLM {show(version)} switches it off for every --kv-transfer-config unless it is asked for"
    if support.supported:
        return _off(f"{why}; {support.reason}", flag=ASK_ON, serve_flags=(ASK_ON,))
    return _off(f"{why}; {support.reason}", path=support.path)


def _off_by_connector(root: Node, support: Support, version: Version) -> Decision:
    decision = _off(support.reason, path=support.path, flag="another connector in --kv-transfer-config")
    if not engine_turns_on(root, version):
        return decision
    return _off(
        f"{support.reason}; vLLM {show(version)} would still switch it on, as it knows MultiConnector by name only, "
        "and die",
        path=support.path,
        flag="another connector in --kv-transfer-config",
        serve_flags=(ASK_OFF,),
    )


def _off(
    reason: str, *, path: str | None = None, flag: str | None = None, serve_flags: tuple[str, ...] = ()
) -> Decision:
    return Decision(verdict=Verdict.OFF, reason=reason, path=path, flag=flag, serve_flags=serve_flags)
