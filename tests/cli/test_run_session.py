"""`run --resume` of a run that is complete: its table, and nothing is touched."""

import pytest

from decodebench.cli.main import build_parser, main
from decodebench.cli.run_arguments import read
from decodebench.cli.run_session import _fingerprint
from decodebench.results.status import Status
from decodebench.results.store import Store
from tests.results.documents import document, other_point, valid_point

COMMAND = ("run", "m", "--url", "http://127.0.0.1:9", "--batch-size", "2", "--max-repeats", "5")
"""Nobody listens there."""


def finished(directory, *options):
    args = build_parser(("run",)).parse_args([*COMMAND, *options])
    args.engine_args, args.argv = (), (*COMMAND, *options)
    request = read(args)
    with Store.create(directory) as store:
        points = (valid_point(0, 2, store), other_point(1, Status.DOES_NOT_FIT, "needs 9 of 8 blocks"))
        store.finish(
            document(
                directory,
                *(
                    point.model_copy(update={"precision_asked": request.settings.precision})
                    for point in points
                ),
                command=request.argv,
                fingerprint=_fingerprint(request, None),
                settings=request.settings.record(),
            )
        )
    return directory


def state(directory):
    """Every file and folder with what it holds and when that was written."""
    found = sorted(directory.rglob("*"))
    return [(path, path.stat().st_mtime_ns, path.is_file() and path.read_bytes()) for path in found]


@pytest.mark.parametrize(
    ("options", "code"),
    [((), 0), (("--precision", "0.0001"), 0), (("--precision", "0.0001", "--require-precision"), 4)],
)
def test_a_complete_run_is_shown_and_left_as_it_is(tmp_path, capsys, options, code):
    directory = finished(tmp_path / "run", *options)
    before = state(directory)
    assert main(["run", "--resume", str(directory)]) == code
    out, err = capsys.readouterr()
    assert "does not fit: needs 9 of 8 blocks" in out
    assert err == "nothing is left to do\n"
    assert state(directory) == before
