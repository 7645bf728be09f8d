"""What a run would measure, on paper: the planner is asked once, and says the same as if asked for every point."""

from dataclasses import replace

import pytest

from decodebench.bench import forecast as module
from decodebench.bench.forecast import PointForecast, forecast, periods, refuse_hopeless
from decodebench.bench.grid import grid
from decodebench.bench.settings import Settings
from decodebench.engine import recipes
from decodebench.engine.command import build_command
from decodebench.engine.preflight import plan_command
from decodebench.errors import UserError
from decodebench.kv.groups import KVCacheGroup, UniformTypeSpecs
from decodebench.kv.specs import MLA, FullAttention, MambaState


@pytest.fixture(scope="module")
def command():
    recipe = recipes.get("tiny-gemma3")
    return build_command(
        str(recipe.materialise()), ("--kv-cache-memory-bytes", "8M"), recipe_args=recipe.vllm_args
    )


def test_every_point_is_as_a_plan_of_its_own_has_it(command, monkeypatch):
    asked = []

    def counted(*args, **more):
        asked.append(args)
        return plan_command(*args, **more)

    monkeypatch.setattr(module, "plan_command", counted)
    found = forecast(command, grid((1, 8, 65), (500, 4000)), Settings((1,), (500,)))
    assert len(asked) == 1
    assert {point.fits for point in found.points} == {True, False}
    for point in found.points:
        alone = plan_command(
            command,
            batch_size=(point.point.batch_size,),
            context_len=(point.window.prompt_len,),
            output_len=point.window.max_tokens,
        ).in_force.points[0]
        assert (point.needed_blocks, point.usable_blocks) == (alone.needed_blocks, alone.usable_blocks)
        assert (point.fits, point.reason) == (alone.fits, alone.reason)


def test_windows_hold_whole_compressions_too():
    """As an engine tells it (tests/e2e/test_exactness.py holds the two against each other)."""
    rows = MLA(block_size=256, num_kv_heads=1, head_size=512, dtype="bfloat16", tokens_per_state=4)
    assert periods([KVCacheGroup(("a",), rows)]) == (4, 256)
    layers = UniformTypeSpecs.of({"a": rows, "b": replace(rows, tokens_per_state=128)})
    assert periods([KVCacheGroup(("a", "b"), layers)]) == (4, 128, 256)


def test_a_state_has_no_period():
    attention = FullAttention(block_size=16, num_kv_heads=1, head_size=64, dtype="bfloat16")
    state = MambaState(block_size=24, shapes=((4, 4),), dtypes=("float32",))
    assert periods([KVCacheGroup(("a",), attention), KVCacheGroup(("b",), state)]) == (16,)


def test_a_grid_of_which_no_point_fits_is_refused_with_the_reasons(command):
    with pytest.raises(UserError, match="65 requests, but --max-num-seqs is 64") as refused:
        refuse_hopeless(forecast(command, grid((65, 64), (4000,)), Settings((1,), (500,))))
    assert "blocks" in refused.value.message
    with pytest.raises(UserError, match="and 14 points more"):
        refuse_hopeless(forecast(command, grid(range(65, 85), (4000,)), Settings((1,), (500,))))


def test_one_point_that_fits_or_may_fit_is_worth_a_start(command):
    found = forecast(command, grid((1, 65), (500,)), Settings((1,), (500,)))
    refuse_hopeless(found)
    hopeless = [point for point in found.points if point.fits is False]
    unknown = PointForecast(hopeless[0].point, None, None, None, None, "memory is not known")
    refuse_hopeless(replace(found, points=(*hopeless, unknown)))
