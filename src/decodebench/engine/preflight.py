"""May the hybrid KV cache manager stay on with this command? Asked before anything is started.

An engine that cannot start with its transfer config otherwise dies in every rank, after the weights were loaded.
"""

from collections.abc import Sequence
from dataclasses import replace

from decodebench.engine import distribution
from decodebench.engine.command import EngineCommand
from decodebench.engine.flags import parse_flags
from decodebench.errors import UserError
from decodebench.hma import Decision, Verdict, decide
from decodebench.hma.rules import ASK_OFF, ASK_ON
from decodebench.planner.plan import Plan, plan


def preflight(command: EngineCommand) -> tuple[EngineCommand, Decision | None]:
    """The command with the flags that keep the manager as it should be, and the decision about it.

    None: the planner does not know the model, so the engine decides alone (where ours has siblings, what they are is
    asked all the same). Raises `UserError` for a transfer config with which the engine cannot start.
    """
    try:
        decision = plan_command(command).hma
    except UserError:
        if not command.siblings:
            return command, None
        decision = _of_connectors(command)
    if decision.verdict in (Verdict.ERROR, Verdict.IMPOSSIBLE):
        raise UserError(f"this engine cannot start: {_located(decision)}", _next_step(command, decision))
    changed = replace(
        command,
        args=(*command.args, *decision.serve_flags),
        warnings=(*command.warnings, *decision.warnings, *_by_siblings(decision)),
    )
    return changed, decision


def _of_connectors(command: EngineCommand) -> Decision:
    """The decision about a model that the planner does not know: what the connectors allow."""
    flags = {flag.name: flag for flag in parse_flags(command.args)}
    asked = True if ASK_ON in flags else False if ASK_OFF in flags else None
    config = flags["--kv-transfer-config"].value
    return decide(config, asked=asked)


def _located(decision: Decision) -> str:
    """The reason, with the connector that it is about where that is one of several."""
    if not decision.path or decision.path in decision.reason:
        return decision.reason
    return f"{decision.reason} (--kv-transfer-config, {decision.path})"


def _next_step(command: EngineCommand, decision: Decision) -> str:
    if decision.path and command.siblings and not (decision.flag or "").startswith("leave out"):
        return "run without that --with-connector, or with one that supports the hybrid KV cache manager"
    return decision.flag or ""


def _by_siblings(decision: Decision) -> tuple[str, ...]:
    """What a connector beside ours does to the manager."""
    if not decision.path:
        return ()
    if decision.verdict is Verdict.OFF:
        return (f"the hybrid KV cache manager will be off: {_located(decision)}",)
    if decision.verdict is Verdict.CANNOT_TELL:
        return (f"the engine will decide about the hybrid KV cache manager: {_located(decision)}",)
    return ()


def plan_command(
    command: EngineCommand,
    batch_size: Sequence[int] = (),
    context_len: Sequence[int] = (),
    output_len: int = 0,
) -> Plan:
    """What the engine of this command builds, and whether the points fit; raises `UserError` if nobody can tell."""
    return plan(
        pasted=("vllm", "serve", command.model, *command.args),
        batch_size=batch_size,
        context_len=context_len,
        output_len=output_len,
        gpu="cpu" if distribution.is_cpu_build() else None,
        env=command.env,
    )
