"""What a table says of the content of the pages: where it came from, how true it is, whether it was proved."""

from collections.abc import Iterator

from decodebench.report.units import count, duration
from decodebench.results.donors import DonorPhase
from decodebench.results.fidelity import RelativeError
from decodebench.results.point import Point
from decodebench.results.schema import RunDocument
from decodebench.results.status import Status

NOT_MEASURED = "not measured"


def content_lines(document: RunDocument) -> list[str]:
    """The lines under the table of a run."""
    return [
        *_made_up(document.points),
        *map(donor_line, document.donors if _valid(document.points) else ()),
        *_fidelity(document),
        *_audit(document.points),
    ]


def donor_line(phase: DonorPhase) -> str:
    """What the donors were and what they cost."""
    spread = "one a request" if phase.one_a_request else "pages mixed by request"
    return (
        f"Content: {phase.donors} donors of {phase.donor_len:,} tokens ({phase.source}), {spread}; prefilled before "
        f"launch {phase.launch + 1} in {phase.duration_ns / 1e9:.1f} s, {phase.bank_bytes / 2**20:,.0f} MiB of host "
        "memory a worker."
    )


def error_with_interval(found: RelativeError | None) -> str:
    """`+0.4% (-1.1% to +1.9%)`, or that it was not measured."""
    if found is None or found.error is None:
        return NOT_MEASURED
    if found.low is None or found.high is None:
        return f"{found.error:+.1%}"
    return f"{found.error:+.1%} ({found.low:+.1%} to {found.high:+.1%})"


def coordinates(point: Point) -> str:
    return f"{point.batch_size} x {count(point.context_len)}"


def _made_up(points: tuple[Point, ...]) -> Iterator[str]:
    for content in dict.fromkeys(point.content for point in _valid(points)):
        if content in ("constant", "normal"):
            yield (
                f"Content: {content} fill; made-up KV picks other experts and sparse indices than text does, so "
                "steps of MoE and sparse-attention models can take a different time than over real KV."
            )
        elif content != "donor":  # told with its donors
            yield f"Content: {content} fill."


def _fidelity(document: RunDocument) -> Iterator[str]:
    measured = [(point, point.fidelity) for point in document.points if point.fidelity is not None]
    for point, found in measured:
        where = f"at {coordinates(point)}, {found.fill} fill, {duration(found.duration_ns / 1e9)}"
        quoted = found.quoted
        if quoted.error is None:
            yield f"Error against real prefill: {NOT_MEASURED} ({where}): {found.reason}."
            continue
        equal = found.at_equal_speed
        few = ", too few for an interval" if quoted.low is None else ""
        left_out = f", {found.spoiled} left out ({found.reason})" if found.spoiled else ""
        means = f"{found.rounds} rounds{left_out}"
        if equal is not None:
            means = f"{equal.rounds} rounds{few}; error of the means {error_with_interval(found)}, {means}"
        else:
            means += few
        yield (
            f"Error against real prefill: {error_with_interval(quoted)} {where}, {means}; it holds at this point only."
        )
    if not measured and document.fidelity_reason is not None:
        yield f"Error against real prefill: {NOT_MEASURED}: {document.fidelity_reason}."
    elif not measured and _valid(document.points):
        yield f"Error against real prefill: {NOT_MEASURED} (`run --fidelity`, or `decodebench fidelity`)."


def _audit(points: tuple[Point, ...]) -> Iterator[str]:
    proofs = [point.audit for point in points if point.audit is not None]
    if not proofs:
        return
    pages, wrong = (sum(sum(proof.pages) for proof in proofs), sum(proof.mismatches for proof in proofs))
    unowned = sum(proof.unowned_pages for proof in proofs)
    changed = [proof.unowned_changed for proof in proofs if proof.unowned_changed is not None]
    known = len(changed) == len(proofs)
    outside = f"{sum(changed):,} changed" if known else "what changed may be other requests'"
    seconds = sum(proof.duration_ns for proof in proofs) / 1e9
    yield (
        f"Audit: {pages:,} pages proved, {wrong:,} mismatches; {unowned:,} pages outside of the fills looked at, "
        f"{outside}; {seconds:.1f} s, part of no measurement."
    )


def _valid(points: tuple[Point, ...]) -> list[Point]:
    return [point for point in points if point.status is Status.VALID]
