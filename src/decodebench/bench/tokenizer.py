"""Text into token ids, by the tokenizer of the server that is measured."""

import asyncio

import aiohttp

from decodebench.bench.client import RequestFailed, Target, post, session_of
from decodebench.bench.donor_prompts import Text, Unreadable, text_ids
from decodebench.errors import EngineFailed

_TRIED = 256  # tokens by which a text shows whether it can be read


async def token_ids(session: aiohttp.ClientSession, target: Target, text: str) -> list[int]:
    """Raises `RequestFailed`."""
    asked = {"model": target.model, "prompt": text, "add_special_tokens": False}
    answer = await post(session, target.headers, None, asked, path="/tokenize")
    return list(answer["tokens"])


def tokenised(target: Target, text: Text) -> tuple[tuple[int, ...], ...]:
    """The token ids of every paragraph. Raises `EngineFailed`."""

    async def ask() -> list[list[int]]:
        async with session_of(target) as session:
            return [await token_ids(session, target, part + "\n\n") for part in text.paragraphs]

    try:
        return tuple(tuple(ids) for ids in asyncio.run(ask()))
    except RequestFailed as error:
        raise EngineFailed("the server did not tokenise a text", str(error)) from None


def text_for(target: Target, asked: Text | None, has_real_weights: bool) -> Text | None:
    """What donors read: the text that was asked for, the shipped one for real weights, else nothing (random ids).

    The tokenizer of a built-in model behind --url knows no word of the shipped text. Raises `EngineFailed`.
    """
    if asked is not None or not has_real_weights:
        return asked
    shipped = Text.shipped()

    async def ask() -> None:
        async with session_of(target) as session:
            await text_ids(shipped, 0, 0, _TRIED, lambda words: token_ids(session, target, words))

    try:
        asyncio.run(ask())
    except Unreadable:
        return None
    except RequestFailed as error:
        raise EngineFailed("the server did not tokenise a text", str(error)) from None
    return shipped
