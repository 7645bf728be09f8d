"""The arguments of `decodebench run`, checked, before anything is started.

They may come from three places: the command line, a file (`--config`), or the command of an earlier run (`--from`,
`--resume`). The command line wins.
"""

import argparse
import hashlib
import json
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pydantic import JsonValue

from decodebench.bench.donor_set import DonorOptions
from decodebench.bench.grid import GridPoint, grid
from decodebench.bench.settings import Settings
from decodebench.bench.stopping import FIRST_LOOK
from decodebench.cli.donor_options import named_donor_options, read_donors
from decodebench.cli.engine_options import connector_config_of, content_of
from decodebench.cli.measure_options import parse_seconds, read_measured, require_at_least
from decodebench.engine.composition import AFTER, BEFORE
from decodebench.engine.redact import HIDDEN, Redactor, secrets_in
from decodebench.errors import UserError
from decodebench.results.provenance import Fill
from decodebench.results.store import Store


@dataclass(frozen=True, slots=True)
class RunRequest:
    """What one `decodebench run` was asked to do."""

    args: argparse.Namespace  # of this run, after --from, --resume and --config
    argv: tuple[str, ...]  # the command that would repeat it, secrets hidden
    settings: Settings
    points: tuple[GridPoint, ...]
    out: Path | None
    resume: Path | None
    url: str | None
    json: bool
    dry_run: bool


def read(args: argparse.Namespace) -> RunRequest:
    """Raises `UserError` for whatever is wrong with the arguments."""
    if args.resume is not None and args.from_dir is not None:
        raise UserError("--resume and --from cannot be used together", "--resume goes on, --from starts anew")
    source = args.resume or args.from_dir
    if source is not None:
        args = _with_command_of(source, args)
    if args.config is not None:
        args = _reparse([*_config_words(args.config), *_own_words(args)], args)
    settings = _settings(args)
    if args.url is not None:
        _refuse_beside_url(args)
    if args.dry_run and args.json:
        raise UserError(
            "--dry-run and --json cannot be used together: nothing is measured, so there is no result to print",
            "leave out --json; `decodebench plan --json` prints a plan of the engine",
        )
    return RunRequest(
        args=args,
        argv=_recorded(args),
        settings=settings,
        points=grid(settings.batch_sizes, settings.context_lens),
        out=args.out,
        resume=args.resume,
        url=_url(args.url) if args.url is not None else None,
        json=args.json,
        dry_run=args.dry_run,
    )


def _refuse_beside_url(args: argparse.Namespace) -> None:
    """What only the one who starts a server can choose."""
    if args.engine_args:
        raise UserError(
            "--url and options after `--` cannot be used together", "the server at --url runs already"
        )
    if args.with_connector or args.with_connector_first:
        raise UserError(
            "--url and --with-connector cannot be used together",
            "the server at --url runs already: start it with `decodebench serve --with-connector ...`",
        )
    if args.launches > 1:
        raise UserError(
            f"--url and --launches {args.launches} cannot be used together: a server that runs already cannot be "
            "started again",
            "leave out --launches, or leave out --url",
        )


def _url(text: str) -> str:
    """The server's address, checked; without a slash at its end."""
    try:
        parts = urlsplit(text)
        is_address = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:  # a port or an IPv6 address that is none
        is_address = False
    if not is_address or any(character.isspace() for character in text):
        raise UserError(f"--url {text}: not a URL", "write it as http://127.0.0.1:8000")
    return text.rstrip("/")


def _settings(args: argparse.Namespace) -> Settings:
    require_at_least("--launches", args.launches, 1)
    require_at_least("--max-repeats", args.max_repeats, FIRST_LOOK)
    measured, donors = read_measured(args), _donors(args)
    return Settings(
        batch_sizes=measured.batch_sizes,
        context_lens=measured.context_lens,
        precision=measured.precision,
        require_precision=args.require_precision,
        max_repeats=args.max_repeats,
        launches=args.launches,
        seed=measured.seed,
        max_time_s=measured.max_time_s,
        window_steps=measured.window_steps,
        stall_timeout_s=parse_seconds(args.stall_timeout, "--stall-timeout"),
        fill=Fill(content=content_of(args), params=_fill_params(args)),
        donors=donors,
        audit=args.audit,
        fidelity=args.fidelity,
    )


def _donors(args: argparse.Namespace) -> DonorOptions | None:
    """What was asked of the donors; None without a donor fill."""
    content, named = content_of(args), named_donor_options(args)
    if content == "donor":
        return read_donors(args, args.donors, halved=args.fidelity)
    if named and args.fill is None:
        raise UserError(
            f"{named} cannot go with --fill-mean and --fill-std, which ask for a fill by numbers",
            "leave out either",
        )
    if named:
        raise UserError(
            f"{named}: the fill is {content}", "leave them out, or use --fill donor (the default)"
        )
    return None


def _fill_params(args: argparse.Namespace) -> dict[str, JsonValue]:
    """What a result says of the fill, and what must be equal for two runs to be one."""
    config = connector_config_of(args)
    if content_of(args) == "donor":
        text = args.donor_text
        digest = hashlib.sha256(text.read_bytes()).hexdigest()[:16] if text is not None else None
        return {"donors": args.donors, "donor_len": args.donor_len, "donor_text": digest, "seed": args.seed}
    return {"mean": config["fill_mean"], "std": config["fill_std"]}  # type: ignore[dict-item]


def _with_command_of(directory: Path, args: argparse.Namespace) -> argparse.Namespace:
    """The arguments an earlier run had; of this command line only where to, how it ends and how it prints."""
    others = set(_own_words(args)) - {"--resume", "--from", "--out", "--json", "--dry-run", "--debug"}
    others -= {str(args.resume), str(args.from_dir), str(args.out)}
    if others or args.engine_args:
        given = ", ".join(sorted(word for word in others if word.startswith("-"))) or "other options"
        raise UserError(
            f"--{'resume' if args.resume else 'from'} takes the options of that run; leave out {given}",
            "to change them, start a new run",
        )
    stored = list(Store.open(directory).load().command)
    if HIDDEN in " ".join(stored):
        raise UserError(
            f"{directory}: its command held a secret, which was not stored",
            "give the whole command again, as a new run",
        )
    earlier = _reparse(stored[1:], args)
    for name in ("resume", "from_dir", "json", "dry_run"):
        setattr(earlier, name, getattr(args, name))
    earlier.out = args.out
    return earlier


def _reparse(words: Sequence[str], args: argparse.Namespace) -> argparse.Namespace:
    from decodebench.cli.arguments import split_engine_args
    from decodebench.cli.main import build_parser

    ours, engine_args = split_engine_args(words)
    parsed = build_parser().parse_args(["run", *ours])
    parsed.engine_args = engine_args or args.engine_args
    parsed.argv = ("run", *ours, *(("--", *parsed.engine_args) if parsed.engine_args else ()))
    return parsed


def _own_words(args: argparse.Namespace) -> list[str]:
    """Our options on the command line, without the verb and without what is the engine's."""
    words = list(args.argv[1:])
    return words[: words.index("--")] if "--" in words else words


def _config_words(path: Path) -> list[str]:
    """A file's options as words of a command line; they come first, so that the command line wins."""
    try:
        text = path.read_text(encoding="utf-8")
        table = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    except (OSError, ValueError) as error:
        raise UserError(
            f"--config {path}: {error}", "give a TOML file, or a JSON file that ends in .json"
        ) from None
    if not isinstance(table, dict):
        raise UserError(f"--config {path}: not a table of options", 'write for example batch-size = "1,32"')
    words: list[str] = []
    for name, value in table.items():
        if name == "model":
            words.insert(0, str(value))
        else:
            words += _option_words(path, f"--{name.replace('_', '-')}", value)
    return words


def _option_words(path: Path, option: str, value: Any) -> list[str]:
    if option in (AFTER, BEFORE):  # repeatable; a table is the connector's transfer config
        each = value if isinstance(value, list) else [value]
        return [word for one in each for word in (option, one if isinstance(one, str) else json.dumps(one))]
    if isinstance(value, bool):
        return [option] if value else []
    if isinstance(value, list):
        return [option, ",".join(map(str, value))]
    if isinstance(value, str | int | float):
        return [option, str(value)]
    raise UserError(
        f"--config {path}: {option[2:]} is {value!r}", "give a text, a number, a list, true or false"
    )


def _recorded(args: argparse.Namespace) -> tuple[str, ...]:
    """The command as a result keeps it, without places and ways to print: they do not belong to what was run."""
    words, skip = [], False
    for word in args.argv:
        if skip:
            skip = False
        elif word in ("--out", "--resume", "--from", "--config"):
            skip = True
        elif not word.startswith(("--out=", "--resume=", "--from=", "--config=")) and word not in (
            "--json",
            "--dry-run",
        ):
            words.append(word)
    return Redactor(secrets_in(words, {})).args(words)
