"""The errors that end a command, and the exit code each of them means.

An error that a user can cause names what was wrong and the next step; it is printed as one message, without a
traceback. Whatever is not one of these is a fault of ours (exit code 70).
"""

from pathlib import Path

EXIT_OK = 0
EXIT_USER = 2
EXIT_ENGINE = 3
EXIT_NO_VALID_POINT = 4
EXIT_REGRESSION = 5
EXIT_CANNOT_TELL = 6
EXIT_INTERNAL = 70


class DecodebenchError(Exception):
    """An error that is told to the user as it stands."""

    exit_code = EXIT_INTERNAL


class UserError(DecodebenchError):
    """Wrong input: what is wrong with which value, what is accepted, and the next step."""

    exit_code = EXIT_USER

    def __init__(self, message: str, next_step: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.next_step = next_step

    def __str__(self) -> str:
        return f"{self.message}\n  -> {self.next_step}" if self.next_step else self.message


class EngineFailed(DecodebenchError):
    """The vLLM server died, could not start or did not answer; `cause` is the underlying exception's own text."""

    exit_code = EXIT_ENGINE

    def __init__(self, what: str, cause: str = "", log_path: Path | None = None) -> None:
        super().__init__(what)
        self.what = what
        self.cause = _readable(cause)
        self.log_path = log_path

    def __str__(self) -> str:
        lines = [self.what]
        if self.cause:
            lines.append("  " + self.cause.replace("\n", "\n  "))
        if self.log_path is not None:
            lines.append(f"  -> the server's log: {self.log_path}")
        return "\n".join(lines)


def _readable(cause: str) -> str:
    """Without the lines of a traceback that mark a place in a line of source which is not shown."""
    return "\n".join(line for line in cause.splitlines() if not line.strip() or line.strip(" ^~"))
