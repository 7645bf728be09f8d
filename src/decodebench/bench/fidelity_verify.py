"""The rounds of a fidelity as they are kept, and its figures once more from what was kept."""

from collections.abc import Iterator, Mapping, Sequence
from math import isclose

import numpy as np

from decodebench.bench.fidelity import Figures, Round, Spoiled, compare
from decodebench.bench.grid import GridPoint
from decodebench.bench.verify import Mismatch, Verification
from decodebench.results.fidelity import Comparison, FidelityDocument
from decodebench.results.rounds import MeasuredCohort, MeasuredRound


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


def verify_fidelity(document: FidelityDocument, measured: Sequence[MeasuredRound]) -> Verification:
    """Does the document say what its rounds say?"""
    found: list[Mismatch] = []
    rounds: dict[tuple[int, int, int], list[Round]] = {}
    used: dict[tuple[int, int, int], int] = {}
    for each in measured:
        rounds.setdefault((each.batch_size, each.context_len, each.launch), []).append(round_of(each))
    for point in document.points:
        for told in point.comparisons:
            key = (point.batch_size, point.context_len, told.launch)
            known = rounds.get(key, [])
            where = f"batch {point.batch_size}, context {point.context_len}, {told.fill}"
            count = told.rounds + told.spoiled
            # A run that was killed may have kept a round without coming to tell of it.
            if not count <= len(known) <= count + 1:
                found.append(Mismatch(where, "the number of rounds", count, len(known)))
                continue
            used[key] = max(count, used.get(key, 0))
            try:
                again = compare(told.fill, told.launch, known[:count])
            # A fill that the rounds do not know, or windows that differ in length.
            except (KeyError, ValueError) as error:
                found.append(Mismatch(where, "the figures", "there", f"impossible ({error!r})"))
                continue
            found += [Mismatch(where, *difference) for difference in _differences(told, again)]
    return Verification(len(document.points), sum(used.values()), tuple(found))


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
    stored, recomputed = _flat(told.model_dump()), _flat(again.model_dump())
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
