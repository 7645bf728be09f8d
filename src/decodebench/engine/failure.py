"""Why a server died: the text of the exception that started it all, found in the server's log.

When an engine or worker process fails, vLLM's server process ends with "Engine core initialization failed. See root
cause above", and the cause stands hundreds of lines earlier, split over the tracebacks of several processes. Here each
process's lines are read apart (vLLM marks them `(EngineCore pid=7)`), its tracebacks are cut out, sentences that only
point elsewhere are passed over, and the first exception that says something is the cause.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

_SOURCE = re.compile(r"^\((?P<name>[\w .:-]+?) pid=(?P<pid>\d+)\) ?")
_RECORD = re.compile(
    r"^(?P<level>DEBUG|INFO|WARNING|ERROR|CRITICAL) \d\d-\d\d \d\d:\d\d:\d\d (?:\[[^\]]*\] ?)?"
)
_EXCEPTION = re.compile(
    r"^(?P<name>[A-Za-z_][\w.]*(?:Error|Exception|Exit|Interrupt|Warning|Timeout)\b|[\w.]+Error)(?:: |:?$)"
)
_USAGE_ERROR = re.compile(r"^[\w.-]+(?: [\w.-]+)*: error: (?P<text>.+)")
_POINTS_ELSEWHERE = (
    "Engine core initialization failed",
    "See root cause above",
    "See stack trace for details",
    "WorkerProc initialization failed",
    "Engine core proc",
    "EngineDeadError",
    "cancelled",
    "BrokenPipeError",
    "SystemExit",
    "KeyboardInterrupt",
)
_DIED_SILENTLY = (
    "EngineDeadError: a process of the engine died and left no exception: it was killed, often by the kernel for want "
    "of memory"
)
_MOST_LINES = 12


@dataclass(frozen=True, slots=True)
class _Line:
    source: str
    text: str
    record: str  # level, time and place of the log record it belongs to; empty for a line printed as it is


def cause_of(log: str) -> str:
    """The text of the underlying exception (`Name: message`), or the last lines of the log where there is none."""
    lines = [_read(line) for line in log.splitlines()]
    exceptions = list(_exceptions(lines))
    found = [text for text in exceptions if not any(words in text for words in _POINTS_ELSEWHERE)]
    if found:
        return found[0]
    usage = [match["text"] for line in lines if (match := _USAGE_ERROR.match(line.text))]
    if usage:
        return usage[-1]
    if any("EngineDeadError" in text for text in exceptions):
        return _DIED_SILENTLY
    last = [line.text for line in lines if line.text.strip()][-5:]
    return "\n".join(["no exception in the log; its last lines:", *last]) if last else "the log is empty"


def _read(line: str) -> _Line:
    line = line.rstrip()
    source = _SOURCE.match(line)
    text = line[source.end() :] if source else line
    record = _RECORD.match(text)
    return _Line(
        source["pid"] if source else "",
        text[record.end() :] if record else text,
        record.group() if record else "",
    )


def _exceptions(lines: list[_Line]) -> Iterator[str]:
    """The final exception of every traceback, in the order the tracebacks begin; chained ones count once."""
    for at, line in enumerate(lines):
        if not line.text.lstrip().startswith("Traceback (most recent call last)"):
            continue
        if _is_chained(lines, at):
            continue
        text = _last_of_chain([later for later in lines[at:] if later.source == line.source])
        if text:
            yield text


def _is_chained(lines: list[_Line], at: int) -> bool:
    before = [
        line.text
        for line in lines[max(0, at - 8) : at]
        if line.source == lines[at].source and line.text.strip()
    ]
    return bool(before) and (
        "direct cause of the following" in before[-1] or "another exception occurred" in before[-1]
    )


def _last_of_chain(lines: list[_Line]) -> str:
    """The exception that leaves the chain of tracebacks at the top of `lines`; its message may have several lines."""
    text, at = _exception_after(lines, 0)
    while True:
        following = [line.text.strip() for line in lines[at : at + 4]]
        joined = " ".join(following)
        if "direct cause of the following" not in joined and "another exception occurred" not in joined:
            return text
        later, at = _exception_after(lines, at)
        if not later:
            return text
        text = later


def _exception_after(lines: list[_Line], start: int) -> tuple[str, int]:
    """(exception's text, index after it) of the traceback that begins at or after `start`."""
    for at in range(start, len(lines)):
        if not _EXCEPTION.match(lines[at].text):
            continue
        message = [lines[at].text]
        for line in lines[at + 1 : at + _MOST_LINES]:
            ends = not line.text.strip() or line.text.startswith(
                ("Traceback", "  File", "During handling", "The above")
            )
            if ends or line.record != lines[at].record or _EXCEPTION.match(line.text):
                break
            message.append(line.text)
        return "\n".join(message), at + len(message)
    return "", len(lines)
