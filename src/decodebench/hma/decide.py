"""May the hybrid KV cache manager (HMA) stay on? The one entry of this room.

`decide` serves the plan, the commands that start a server and, through `supports_hma_config`, the question that
vLLM's factory asks. Needs neither torch nor vLLM, and imports no code that a config names unless it is allowed to.

    >>> decide({"kv_connector": "ExampleConnector", "kv_role": "kv_both"}, vllm_version="0.32").verdict.value
    'off'
"""

from dataclasses import replace

from decodebench.errors import EXIT_CANNOT_TELL, DecodebenchError
from decodebench.hma.config import TransferConfigError, read_config
from decodebench.hma.decision import Decision, ModelFacts, Verdict
from decodebench.hma.rules import rule
from decodebench.hma.tree import Node, build_tree, engine_warnings, support_of
from decodebench.hma.version import NEWEST, Version, parse_version, show
from decodebench.hma.vllm_source import installed_version


class CannotTell(DecodebenchError):
    """The question has no answer without importing code that may not be imported, or is not there."""

    exit_code = EXIT_CANNOT_TELL


def decide(
    transfer_config: object | None,
    *,
    asked: bool | None = None,
    model: ModelFacts | None = None,
    vllm_version: str | None = None,
    allow_import: bool = False,
    allow_chunked: bool = False,
    platform_supports: bool = True,
) -> Decision:
    """Decide for a transfer config (JSON text, a mapping, a `KVTransferConfig`; None: no connector at all).

    `asked` is the user's flag: True for `--no-disable-hybrid-kv-cache-manager`, False for
    `--disable-hybrid-kv-cache-manager`, None for neither. `allow_chunked` is the environment variable
    VLLM_ALLOW_CHUNKED_LOCAL_ATTN_WITH_HYBRID_KV_CACHE. Never raises for a wrong config: that is the verdict `error`.
    """
    model = model or ModelFacts()
    version, assumed = _version(vllm_version)
    root: Node | None = None
    try:
        if transfer_config is not None:
            root = build_tree(read_config(transfer_config), version, allow_import)
    except TransferConfigError as error:
        return Decision(verdict=Verdict.ERROR, reason=str(error), path=error.path, assumed=assumed)
    ruling = rule(root, asked, model, version, allow_chunked, platform_supports)
    return _for_model(replace(ruling, assumed=assumed), root, model, version)


def supports_hma_config(
    transfer_config: object, *, vllm_version: str | None = None, allow_import: bool = False
) -> bool:
    """The factory-style question: does this transfer config support the hybrid manager?

    Like vLLM's `KVConnectorFactory.supports_hma_config`, except that a MultiConnector is known by its class, not its
    name. Raises `TransferConfigError` for a config that the engine refuses, `CannotTell` for a connector whose code is
    not here.
    """
    version, _ = _version(vllm_version)
    support = support_of(build_tree(read_config(transfer_config), version, allow_import))
    if support.supported is None:
        where = f"{support.path}: " if support.path else ""
        raise CannotTell(f"cannot tell whether the transfer config supports HMA: {where}{support.reason}")
    return support.supported


def _version(given: str | None) -> tuple[Version, tuple[str, ...]]:
    installed = installed_version() if given is None else None
    version = parse_version(given or installed or show(NEWEST))
    assumed: tuple[str, ...] = (
        () if given or installed else (f"vLLM {show(NEWEST)}, the newest known (none is installed)",)
    )
    if version > NEWEST:
        assumed += (f"the rules of vLLM {show(NEWEST)} hold for {show(version)}",)
    return version, assumed


def _for_model(ruling: Decision, root: Node | None, model: ModelFacts, version: Version) -> Decision:
    """The ruling, seen by this model: one that needs the manager cannot run where it is off."""
    decision = ruling if root is None else replace(ruling, warnings=engine_warnings(root, version))
    if ruling.verdict is Verdict.OFF and root is not None and _has_hisparse(root):
        reason = f"HiSparseConnector needs the hybrid KV cache manager, but it is off: {ruling.reason}"
        return replace(decision, verdict=Verdict.ERROR, reason=reason)
    refused = ruling.verdict is Verdict.OFF or (ruling.verdict is Verdict.ERROR and ruling.path is not None)
    if not model.off_error or not refused:
        return decision
    if ruling.path is None:
        reason = f"impossible as asked: {ruling.reason}, and this model needs it ({model.off_error})"
    else:
        from decodebench.hma.known import supporting_names

        would_do = ", ".join(supporting_names(version))
        reason = (
            f"impossible with this connector: {ruling.reason}, and this model needs the manager ({model.off_error}); "
            f"connectors of vLLM {show(version)} that would do: {would_do}"
        )
    return replace(decision, verdict=Verdict.IMPOSSIBLE, reason=reason)


def _has_hisparse(root: Node) -> bool:
    """As in `config/vllm.py`, which refuses HiSparse without the manager: the connector itself or a direct child."""
    return any(node.config.name == "HiSparseConnector" for node in (root, *root.children))
