import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from decodebench.bench.fidelity import REAL, compare
from decodebench.bench.fidelity_verify import round_of
from decodebench.cli.main import main
from decodebench.results.fidelity import FidelityDocument, FidelityPoint, PointFidelity
from decodebench.results.rounds import MeasuredCohort, MeasuredRound, append
from decodebench.results.schema import RunDocument, RunStatus, parse
from decodebench.results.store import Store
from tests.results.documents import document, finished_run, valid_point
from tests.results.test_fidelity import document as fidelity_document


@pytest.fixture
def run(tmp_path: Path) -> RunDocument:
    return finished_run(tmp_path / "run")


Captured = pytest.CaptureFixture[str]


def test_show_prints_the_table_again(run: RunDocument, capsys: Captured) -> None:
    assert main(["show", run.out]) == 0
    shown = capsys.readouterr()
    assert "does not fit: needs 4128 of 2000 blocks" in shown.out
    assert f"Saved in {run.out}" in shown.out
    assert shown.err == ""


def test_json_is_the_document_on_the_last_line(run: RunDocument, capsys: Captured) -> None:
    assert main(["show", run.out, "--verify", "--json"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert parse(lines[-1], "stdout") == run
    assert len(lines) == 1


def test_verify_says_how_much_was_recomputed(run: RunDocument, capsys: Captured) -> None:
    assert main(["show", run.out, "--verify"]) == 0
    assert "verify: 4 points, 12 repeats recomputed from their steps, 0 mismatches" in capsys.readouterr().out


def test_verify_of_an_edited_document_names_the_field_and_cannot_tell(
    run: RunDocument, capsys: Captured
) -> None:
    path = Path(run.out) / "run.json"
    raw = json.loads(path.read_text())
    raw["points"][0]["output_tokens_per_s"] *= 2
    path.write_text(json.dumps(raw))
    assert main(["show", run.out, "--verify"]) == 6
    assert "point 0 (batch 2, context 1000): output_tokens_per_s is" in capsys.readouterr().out
    assert main(["show", run.out]) == 0, "without --verify the document is taken at its word"


def test_a_run_that_is_still_going_can_be_shown_and_verified(run: RunDocument, capsys: Captured) -> None:
    with Store.resume(Path(run.out), run.fingerprint)[0]:
        assert main(["show", run.out, "--verify"]) == 0


def test_a_run_whose_process_was_killed_is_told_from_one_that_is_measured(
    tmp_path: Path, capsys: Captured
) -> None:
    store = Store.create(tmp_path / "run")
    store.write(document(store.directory, valid_point(0, 2, store), status=RunStatus.RUNNING))
    assert main(["show", str(store.directory)]) == 0
    measured = capsys.readouterr().out
    assert "The run has not finished yet" in measured
    assert "--resume" not in measured
    store.close()
    assert main(["show", str(store.directory)]) == 0
    killed = capsys.readouterr().out
    assert "The run did not finish: its process ended" in killed
    assert f"go on with: decodebench run --resume {store.directory}\n" in killed


def break_nothing(directory: Path) -> Path:
    return directory.parent / "nowhere"


def break_to_a_file(directory: Path) -> Path:
    return directory / "run.json"


def empty(directory: Path) -> Path:
    (directory.parent / "empty").mkdir()
    return directory.parent / "empty"


def cut_document(directory: Path) -> Path:
    path = directory / "run.json"
    path.write_bytes(path.read_bytes()[:-40])
    return directory


def newer_document(directory: Path) -> Path:
    path = directory / "run.json"
    path.write_text(path.read_text().replace("decodebench.run/1", "decodebench.run/2"))
    return directory


def no_steps(directory: Path) -> Path:
    (directory / "steps.parquet").unlink()
    return directory


def cut_steps(directory: Path) -> Path:
    path = directory / "steps.parquet"
    path.write_bytes(path.read_bytes()[:-40])
    return directory


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (break_nothing, "no such directory"),
        (break_to_a_file, "no such directory"),
        (empty, "No such file"),
        (cut_document, "not JSON"),
        (newer_document, "install a newer decodebench"),
        (no_steps, "steps.parquet: missing"),
        (cut_steps, "steps.parquet: cannot be read"),
    ],
)
def test_what_cannot_be_read_is_one_message_and_exit_code_2(
    run: RunDocument, capsys: Captured, damage: object, message: str
) -> None:
    directory = damage(Path(run.out))  # type: ignore[operator]
    assert main(["show", str(directory), "--verify"]) == 2
    shown = capsys.readouterr()
    assert message in shown.err
    assert str(directory) in shown.err
    assert shown.out == ""
    assert "Traceback" not in shown.err
    assert len(shown.err.splitlines()) <= 2


def test_a_thousand_mismatches_are_counted_not_listed(run: RunDocument, capsys: Captured) -> None:
    path = Path(run.out) / "run.json"
    raw = json.loads(path.read_text())
    for point in raw["points"][:2]:
        for detail in point["repeat_details"]:
            detail |= {"steps": 1, "duration_ns": 1, "window_start": 1}
    path.write_text(json.dumps(raw))
    assert main(["show", run.out, "--verify"]) == 6
    out = capsys.readouterr().out
    assert "36 mismatches" in out
    assert "... and 16 more" in out
    assert len([line for line in out.splitlines() if ", recomputed " in line]) == 20


@pytest.fixture
def compared(tmp_path: Path) -> Path:
    """A directory as `decodebench fidelity` leaves it."""
    directory = tmp_path / "compared"
    directory.mkdir()
    (directory / "fidelity.json").write_text(fidelity_document().to_json())
    return directory


def test_the_result_of_a_fidelity_is_shown_again(compared: Path, capsys: Captured) -> None:
    assert main(["show", str(compared)]) == 0
    shown = capsys.readouterr().out
    assert "+1.0%" in shown
    assert "-2.0% to +4.0%" in shown
    assert f"Saved in {compared}" in shown
    assert main(["show", str(compared), "--json"]) == 0
    assert FidelityDocument.model_validate_json(capsys.readouterr().out) == fidelity_document()


def keep_rounds(directory: Path, batch_size: int) -> list[MeasuredRound]:
    """Keep rounds; returns all but the last, which a killed run may not have come to tell of."""
    rng = np.random.default_rng(0)
    rounds = [
        MeasuredRound(
            batch_size=batch_size,
            context_len=1000,
            launch=0,
            draw=number // 2,
            cohorts={
                REAL: cohort(100_000 * rng.lognormal(0, 0.02, 30)),
                "donor": cohort(
                    99_000 * rng.lognormal(0, 0.02, 30), drifting="drifting" if number == 4 else None
                ),
            },
            spoiled={} if number < 11 else {"constant": "step 7 preempted 1 request(s)"},
        )
        for number in range(12)
    ]
    for each in rounds:
        append(directory, each)
    return rounds[:-1]


def with_rounds(directory: Path) -> FidelityDocument:
    """The rounds of a fidelity, and the document that tells of them."""
    found = compare("donor", 0, [round_of(each) for each in keep_rounds(directory, batch_size=4)])
    point = FidelityPoint(batch_size=4, context_len=1000, comparisons=(found,))
    document = fidelity_document().model_copy(update={"points": (point,), "passes": 2})
    (directory / "fidelity.json").write_text(document.to_json())
    return document


def cohort(durations: "np.ndarray", drifting: str | None = None) -> MeasuredCohort:
    steps = tuple(map(int, durations))
    return MeasuredCohort(
        durations_ns=(steps,), measured_context=1000.0, distinct_tokens=3.9, drifting=drifting
    )


def test_verify_recomputes_a_fidelity_from_its_rounds(compared: Path, capsys: Captured) -> None:
    document = with_rounds(compared)
    assert main(["show", str(compared), "--verify", "--json"]) == 0
    shown = capsys.readouterr()
    assert "verify: 1 points, 11 rounds recomputed from their steps, 0 mismatches" in shown.err
    assert FidelityDocument.model_validate_json(shown.out) == document


@pytest.mark.parametrize(
    "field", ["error", "at_equal_speed.high", "at_equal_speed.draws", "real.step_time_ns", "rounds"]
)
def test_verify_of_an_edited_fidelity_names_the_field(compared: Path, capsys: Captured, field: str) -> None:
    with_rounds(compared)
    path = compared / "fidelity.json"
    raw = json.loads(path.read_text())
    *outer, name = field.split(".")
    place = raw["points"][0]["comparisons"][0]
    for each in outer:
        place = place[each]
    place[name] += 3
    path.write_text(json.dumps(raw))
    assert main(["show", str(compared), "--verify"]) == 6
    said = "the number of rounds is 14" if field == "rounds" else f"{field} is {place[name]}"
    assert f"batch 4, context 1000, donor: {said}" in capsys.readouterr().out


@pytest.mark.parametrize("damage", ["fill", "length"])
def test_verify_of_a_fidelity_whose_rounds_tell_of_something_else(
    compared: Path, capsys: Captured, damage: str
) -> None:
    with_rounds(compared)
    name = "fidelity.json" if damage == "fill" else "rounds.jsonl"
    path = compared / name
    text = path.read_text()
    if damage == "fill":
        text = text.replace('"donor"', '"donor:3"', 1)
    else:
        steps = json.loads(text.splitlines()[0])["cohorts"]["donor"]["durations_ns"][0]
        text = text.replace("".join(f",{each}" for each in steps[20:]), "", 1)
    path.write_text(text)
    assert main(["show", str(compared), "--verify"]) == 6
    assert "impossible" in capsys.readouterr().out


def test_verify_of_a_fidelity_misses_a_round(compared: Path, capsys: Captured) -> None:
    with_rounds(compared)
    path = compared / "rounds.jsonl"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:9]) + '{"batch_size": 4, "cont')
    assert main(["show", str(compared), "--verify"]) == 6
    assert "the number of rounds is 11, recomputed 9" in capsys.readouterr().out


@pytest.fixture
def run_compared(run: RunDocument) -> Path:
    """A run whose point 0 was compared with real prefill."""
    directory = Path(run.out)
    found = compare("donor", 0, [round_of(each) for each in keep_rounds(directory, batch_size=2)])
    told = PointFidelity(**dict(found), duration_ns=10**9)
    points = (run.points[0].model_copy(update={"fidelity": told}), *run.points[1:])
    store = Store.open(directory)
    store.write(run.model_copy(update={"points": points}))
    return directory


def test_verify_of_a_run_recomputes_its_comparison_too(run_compared: Path, capsys: Captured) -> None:
    assert main(["show", str(run_compared), "--verify"]) == 0
    said = "12 repeats and 11 rounds of the comparison with real prefill recomputed from their steps, 0 mismatches"
    assert said in capsys.readouterr().out


@pytest.mark.parametrize("field", ["error", "low", "rounds", "fill", "launch"])
def test_verify_of_a_run_finds_an_edited_comparison(run_compared: Path, capsys: Captured, field: str) -> None:
    path = run_compared / "run.json"
    raw = json.loads(path.read_text())
    told = raw["points"][0]["fidelity"]
    told[field] = "constant" if field == "fill" else told[field] + 3
    path.write_text(json.dumps(raw))
    assert main(["show", str(run_compared), "--verify"]) == 6
    assert "batch 2, context 1000, " in capsys.readouterr().out


def test_verify_of_a_run_misses_the_rounds_it_tells_of(run_compared: Path, capsys: Captured) -> None:
    (run_compared / "rounds.jsonl").unlink()
    assert main(["show", str(run_compared), "--verify"]) == 6
    shown = capsys.readouterr().out
    assert "the number of rounds is 11, recomputed 0" in shown
    assert "12 repeats" in shown


@pytest.mark.parametrize("kind", ["run", "fidelity"])
def test_verify_misses_a_comparison_that_was_measured(
    run_compared: Path, compared: Path, capsys: Captured, kind: str
) -> None:
    with_rounds(compared)
    path = run_compared / "run.json" if kind == "run" else compared / "fidelity.json"
    raw = json.loads(path.read_text())
    if kind == "run":
        del raw["points"][0]["fidelity"]
    else:
        raw["points"][0]["comparisons"] = []
    path.write_text(json.dumps(raw))
    assert main(["show", str(path.parent), "--verify"]) == 6
    assert "launch 0: the comparison is absent, recomputed 12 rounds" in capsys.readouterr().out


def test_verify_of_a_run_whose_comparison_had_no_time_needs_no_rounds(
    run: RunDocument, capsys: Captured
) -> None:
    told = PointFidelity(**dict(compare("donor", 0, [])) | {"reason": "no round ended within 30 s"})
    points = (run.points[0].model_copy(update={"fidelity": told}), *run.points[1:])
    Store.open(Path(run.out)).write(run.model_copy(update={"points": points}))
    assert main(["show", run.out, "--verify"]) == 0
    assert "and 0 rounds" in capsys.readouterr().out


def test_a_damaged_line_of_rounds_is_one_message(compared: Path, capsys: Captured) -> None:
    with_rounds(compared)
    path = compared / "rounds.jsonl"
    path.write_text(path.read_text().replace('"launch":0', '"launch":"0"', 1))
    assert main(["show", str(compared), "--verify"]) == 2
    assert "rounds.jsonl, line 1: launch" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("damage", "options", "message"),
    [
        (str, ["--verify"], "rounds.jsonl: missing"),
        (lambda text: text[:-40], [], "not JSON"),
        (lambda text: text.replace("fidelity/1", "fidelity/2"), [], "install a newer decodebench"),
        (lambda text: text.replace("fidelity/1", "run/1"), [], "not a result of decodebench fidelity"),
        (lambda text: text.replace('"batch_size": 4', '"batch_size": "4"'), [], "field points.0.batch_size"),
    ],
)
def test_a_fidelity_that_cannot_be_read_or_verified_is_one_message(
    compared: Path, capsys: Captured, damage: Callable[[str], str], options: list[str], message: str
) -> None:
    file = compared / "fidelity.json"
    file.write_text(damage(file.read_text()))
    assert main(["show", str(compared), *options]) == 2
    shown = capsys.readouterr()
    assert message in shown.err
    assert str(compared) in shown.err
    assert shown.out == ""
    assert len(shown.err.splitlines()) <= 2


def test_help_imports_nothing_heavy() -> None:
    script = """
import argparse, sys
from decodebench.cli import show
show.add_parser(argparse.ArgumentParser().add_subparsers())
print([name for name in ("numpy", "pyarrow", "pydantic", "rich", "torch", "vllm") if name in sys.modules])
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == "[]"


def test_a_closed_pipe_is_no_traceback(run: RunDocument) -> None:
    command = f"{sys.executable} -m decodebench.cli.main show {run.out} | true"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60, check=False)
    assert "Traceback" not in done.stderr
