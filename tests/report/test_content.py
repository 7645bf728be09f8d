"""What is said of the content of the pages: a figure only where it was measured."""

import pytest

from decodebench.report.content import content_lines
from decodebench.results.audit import AuditProof
from decodebench.results.donors import DonorPhase
from decodebench.results.fidelity import Arm, PointFidelity
from decodebench.results.provenance import Settings
from decodebench.results.schema import RunDocument
from decodebench.results.status import Status
from tests.report.test_terminal import row, shown
from tests.results.documents import document, other_point, valid_point

ARM = Arm(step_time_ns=50_000_000, measured_context=1000, distinct_tokens=15.6)
PHASE = DonorPhase(
    donors=4,
    donor_len=640,
    seed=0,
    source="random ids",
    tokens=2560,
    duration_ns=10**9,
    bank_bytes=2**20,
    one_a_request=True,
)
FOUND = PointFidelity(
    fill="donor",
    launch=0,
    rounds=8,
    error=0.004,
    low=-0.011,
    high=0.019,
    real=ARM,
    filled=ARM,
    duration_ns=45 * 10**9,
)


def run(*fidelity: PointFidelity | None, asked: bool = True, **changes: object) -> RunDocument:
    points = [
        valid_point(number, 2 + number).model_copy(update={"content": "donor", "fidelity": found})
        for number, found in enumerate(fidelity)
    ]
    settings = Settings(batch_sizes=(2, 3), context_lens=(1000,), fidelity=asked)
    return document("out", *points, settings=settings, **changes)


def said(document: RunDocument) -> str:
    (line,) = [line for line in content_lines(document) if line.startswith("Error against real prefill")]
    return line


def test_the_table_has_the_error_at_its_point_and_not_measured_at_all_others():
    text = shown(run(None, FOUND))
    assert "not measured" in row(text, "2", "1k")
    assert "+0.4% (-1.1% to +1.9%)" in row(text, "3", "1k")
    assert "not measured" not in row(text, "3", "1k")


def test_the_line_below_has_point_fill_rounds_and_cost():
    line = said(run(None, FOUND))
    assert "+0.4% (-1.1% to +1.9%) at 3 x 1k, donor fill, 45 s, 8 rounds" in line


def test_without_fidelity_there_is_no_column_and_one_line_says_that_it_was_not_measured():
    plain = run(None, None, asked=False)
    assert "real prefill" not in shown(plain).partition("Error against")[0]
    assert "not measured (`run --fidelity`, or `decodebench fidelity`)" in said(plain)


def test_a_comparison_that_failed_says_why_and_shows_no_figure():
    nothing = PointFidelity(fill="donor", launch=0, spoiled=3, reason="no round ended within 15 s")
    line = said(run(nothing))
    assert "not measured (at 2 x 1k" in line
    assert "no round ended within 15 s" in line
    assert "%" not in line
    assert "fits with requests" in said(run(None, fidelity_reason="no point fits with requests"))


def test_the_audit_is_one_line_over_all_points():
    proof = AuditProof(pages=(3000, 500), unowned_pages=9000, duration_ns=1_300_000_000)
    points = [valid_point(number, 2).model_copy(update={"audit": proof}) for number in (0, 1)]
    (line,) = [line for line in content_lines(document("out", *points)) if line.startswith("Audit")]
    assert line == (
        "Audit: 7,000 pages proved, 0 mismatches; 18,000 pages outside of the fills looked at, 0 changed; 2.6 s, part "
        "of no measurement."
    )
    disturbed = points[0].model_copy(update={"audit": proof.model_copy(update={"unowned_changed": None})})
    assert "may be other requests'" in "".join(content_lines(document("out", disturbed, points[1])))
    assert "Audit" not in shown(document("out", valid_point(0, 2)))


def test_points_without_figures_have_no_content_to_speak_of():
    unverified = other_point(0, Status.UNVERIFIED, "the server does not run decodebench's connector")
    assert content_lines(document("out", unverified)) == []


@pytest.mark.parametrize("status", [status for status in Status if status is not Status.VALID])
def test_donors_of_a_run_in_which_no_point_was_measured_are_no_content_of_anything(status: Status) -> None:
    assert content_lines(document("out", other_point(0, status, "because"), donors=(PHASE,))) == []
    (said,) = [line for line in content_lines(run(None, asked=False, donors=(PHASE,))) if "donors" in line]
    assert said.startswith("Content: 4 donors")
