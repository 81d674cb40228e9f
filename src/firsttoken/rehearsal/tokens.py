"""The tokenizer: syllables, a few English words and all bytes.

Key insight: a random decoder over a syllable vocabulary writes text that can be spoken and is never mistaken for noise or for
a broken model that repeats one token. Bytes make every input representable; the decoder never writes them.
"""

from __future__ import annotations

from collections.abc import Sequence

_CONSONANTS = ("b", "d", "f", "g", "k", "l", "m", "n", "p", "r", "s", "t", "v", "z", "ch", "sh")
_VOWELS = ("a", "e", "i", "o", "u")
_WORDS = (
    " the", " of", " and", " to", " in", " is", " it", " that", " was", " for", " on", " with", " as", " at", " by", " this",
    " from", " or", " an", " be", " are", " not", " but", " we", " they", " one", " all", " so", " up", " when",
)  # fmt: skip
_MARKS = (",", ".")

_SYLLABLES = tuple(consonant + vowel for consonant in _CONSONANTS for vowel in _VOWELS)
_PIECES = (*_SYLLABLES, *(" " + syllable for syllable in _SYLLABLES), *_WORDS, *_MARKS)

FIRST_PIECE = 256
"""Tokens below are single bytes."""

VOCABULARY = FIRST_PIECE + len(_PIECES)

_TOKEN_OF = {piece: FIRST_PIECE + place for place, piece in enumerate(_PIECES)}
_LONGEST = max(map(len, _PIECES))


def encode(text: str) -> list[int]:
    """Tokens of a text: the longest piece that fits, else the bytes of a character. Never empty."""
    tokens: list[int] = []
    place = 0
    while place < len(text):
        for length in range(_LONGEST, 0, -1):
            token = _TOKEN_OF.get(text[place : place + length])
            if token is not None:
                tokens.append(token)
                place += length
                break
        else:
            tokens.extend(text[place].encode("utf-8", "surrogatepass"))
            place += 1
    return tokens or [ord("\n")]


def decode(tokens: Sequence[int]) -> str:
    """The text of tokens; bytes that are no UTF-8 become replacement characters."""
    raw = b"".join(bytes([token]) if token < FIRST_PIECE else _PIECES[token - FIRST_PIECE].encode() for token in tokens)
    return raw.decode("utf-8", "replace")
