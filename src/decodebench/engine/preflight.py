"""May the hybrid KV cache manager stay on with this command? Asked before anything is started.

An engine that cannot start with its transfer config otherwise dies in every rank, after the weights were loaded.
"""

from collections.abc import Sequence
from dataclasses import replace

from decodebench.engine import distribution
from decodebench.engine.command import EngineCommand
from decodebench.errors import UserError
from decodebench.hma import Decision, Verdict
from decodebench.planner.plan import Plan, plan


def preflight(command: EngineCommand) -> tuple[EngineCommand, Decision | None]:
    """The command with the flags that keep the manager as it should be, and the decision about it.

    None: the planner does not know the model, so the engine decides alone. Raises `UserError` for a transfer config
    with which the engine cannot start.
    """
    try:
        decision = plan_command(command).hma
    except UserError:
        return command, None
    if decision.verdict in (Verdict.ERROR, Verdict.IMPOSSIBLE):
        raise UserError(f"this engine cannot start: {decision.reason}", decision.flag or "")
    changed = replace(
        command,
        args=(*command.args, *decision.serve_flags),
        warnings=(*command.warnings, *decision.warnings),
    )
    return changed, decision


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
