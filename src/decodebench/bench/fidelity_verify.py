"""The rounds of a fidelity as they are kept, and its figures once more from what was kept."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import isclose

import numpy as np

from decodebench.bench.fidelity import Figures, Round, Spoiled, compare
from decodebench.bench.grid import GridPoint
from decodebench.bench.verify import Mismatch, Verification
from decodebench.results.fidelity import Comparison, FidelityDocument
from decodebench.results.rounds import MeasuredCohort, MeasuredRound
from decodebench.results.schema import RunDocument


def kept(point: GridPoint, launch: int, each: Round) -> MeasuredRound:
    """A round of a point as `rounds.jsonl` holds it."""
    return MeasuredRound(
        batch_size=point.batch_size,
        context_len=point.context_len,
        launch=launch,
        draw=each.draw,
        cohorts={name: _cohort(arm) for name, arm in each.arms.items() if isinstance(arm, Figures)},
        spoiled={name: arm.reason for name, arm in each.arms.items() if isinstance(arm, Spoiled)},
    )


def round_of(measured: MeasuredRound) -> Round:
    """The inverse of `kept`."""
    arms: dict[str, Figures | Spoiled] = {
        name: Figures(
            steps=tuple(np.array(rank, dtype=np.int64) for rank in cohort.durations_ns),
            context=cohort.measured_context,
            distinct=cohort.distinct_tokens,
            experts=cohort.distinct_experts,
            drifting=cohort.drifting,
        )
        for name, cohort in measured.cohorts.items()
    }
    return Round(measured.draw, arms | {name: Spoiled(reason) for name, reason in measured.spoiled.items()})


def verify_fidelity(document: FidelityDocument, measured: Iterable[MeasuredRound]) -> Verification:
    """Does the document say what its rounds say?"""
    return _verify(
        [
            (point.batch_size, point.context_len, told)
            for point in document.points
            for told in point.comparisons
        ],
        measured,
    )


def verify_run_fidelity(document: RunDocument, measured: Iterable[MeasuredRound]) -> Verification:
    """The same of a run's comparison with real prefill, if it has one."""
    return _verify(
        [
            (point.batch_size, point.context_len, point.fidelity)
            for point in document.points
            if point.fidelity is not None
        ],
        measured,
    )


def _verify(
    tellings: Sequence[tuple[int, int, Comparison]], measured: Iterable[MeasuredRound]
) -> Verification:
    """Every comparison, told of a batch size and context, once more."""
    found: list[Mismatch] = []
    rounds: dict[tuple[int, int, int], list[Round]] = {}
    used: dict[tuple[int, int, int], int] = {}
    for each in measured:
        rounds.setdefault((each.batch_size, each.context_len, each.launch), []).append(round_of(each))
    for batch_size, context_len, told in tellings:
        key = (batch_size, context_len, told.launch)
        known = rounds.get(key, [])
        where = f"batch {batch_size}, context {context_len}, {told.fill}"
        count = told.rounds + told.spoiled
        used.setdefault(key, 0)
        # A run that was killed may have kept a round without coming to tell of it.
        if not count <= len(known) <= count + 1:
            found.append(Mismatch(where, "the number of rounds", count, len(known)))
            continue
        used[key] = max(count, used[key])
        try:
            again = compare(told.fill, told.launch, known[:count])
        # A fill that the rounds do not know, or windows that differ in length.
        except (KeyError, ValueError) as error:
            found.append(Mismatch(where, "the figures", "there", f"impossible ({error!r})"))
            continue
        found += [Mismatch(where, *difference) for difference in _differences(told, again)]
    for key in rounds.keys() - used.keys():
        if len(rounds[key]) > 1:
            where = "batch {}, context {}, launch {}".format(*key)
            found.append(Mismatch(where, "the comparison", "absent", f"{len(rounds[key])} rounds"))
    points = {(batch_size, context_len) for batch_size, context_len, _ in tellings}
    return Verification(len(points), sum(used.values()), tuple(found))


def _cohort(arm: Figures) -> MeasuredCohort:
    return MeasuredCohort(
        durations_ns=tuple(tuple(rank.tolist()) for rank in arm.steps),
        measured_context=arm.context,
        distinct_tokens=arm.distinct,
        distinct_experts=arm.experts,
        drifting=arm.drifting,
    )


def _differences(told: Comparison, again: Comparison) -> Iterator[tuple[str, object, object]]:
    """Field, as told, as recomputed."""
    stored, recomputed = (
        _flat(told.model_dump(include=set(Comparison.model_fields))),
        _flat(again.model_dump()),
    )
    if not told.rounds + told.spoiled:
        del stored["reason"], recomputed["reason"]  # why there is no round, no round tells
    for name in stored | recomputed:
        one, other = stored.get(name), recomputed.get(name)
        floats = isinstance(one, float) and isinstance(other, float)
        if not (isclose(one, other, rel_tol=1e-9, abs_tol=1e-12) if floats else one == other):  # type: ignore[arg-type]
            yield name, one, other


def _flat(record: Mapping[str, object], prefix: str = "") -> dict[str, object]:
    flat: dict[str, object] = {}
    for name, value in record.items():
        flat |= _flat(value, f"{prefix}{name}.") if isinstance(value, Mapping) else {prefix + name: value}
    return flat
