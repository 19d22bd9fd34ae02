"""Which id each piece of a sentencepiece model has: the model's own, or that of another list."""

import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from keras_transformer import arguments
from keras_transformer.text.sentencepiece_library import SPACE_MARK, read_types
from keras_transformer.text.tokenizer import LANGUAGE_CODE

# What text becomes. Its own model keeps text from pieces of the other types.
TEXT_TYPES = ("NORMAL", "USER_DEFINED", "BYTE")
SPECIAL = ("pad_id", "unk_id", "bos_id", "eos_id")
MOST_IDS = 2**22  # a list with room for larger ones is not made
NAMED_CODE = re.compile("[a-z]{3}_[A-Z][a-z]{3}|__[a-z]{2,3}__")  # tags of NLLB and M2M100

Vocabulary = Sequence[str | None] | Mapping[str, int] | str | os.PathLike[str]


class PieceIds(NamedTuple):
    """The ids of a vocabulary, and how they go with those of a sentencepiece model.

    Attributes:
        pieces: list of str, the piece of each id; the unknown one where an id has none.
        surfaces: list of str, the text of each id; "" for special ones, tags and ids without one.
        special: the names of `SPECIAL` to ids.
        tags: the pieces that text never becomes to their ids, special ones left out.
        codes: the pieces `>>code<<` that are not tags to their ids. Text may become one anywhere.
        from_model: int32 (model pieces,), the id that text gets for a piece of the model. It is
            `unk_id` for a piece that the vocabulary lacks. None where all are the model's own.
        to_model: int32 (ids,), the piece of the model that each id reads as. None where all are
            the model's own.
        from_text: where the model lacks some pieces, all that text becomes, to their ids. What
            the model does not know may be one, such as a letter of the other language. None
            where the model has all.
        to_text: list of str, the piece that each id reads as; None where the model has all.
    """

    pieces: list[str]
    surfaces: list[str]
    special: dict[str, int]
    tags: dict[str, int]
    codes: dict[str, int]
    from_model: np.ndarray | None
    to_model: np.ndarray | None
    from_text: dict[str, int] | None
    to_text: list[str] | None


def number_pieces(
    model: bytes,
    model_pieces: Sequence[str],
    vocabulary: Sequence[str | None] | None,
    special: Mapping[str, int | None],
    tags: Iterable[str] | None,
) -> PieceIds:
    """Returns the `PieceIds` of a model and of a vocabulary.

    A special id that is not given is that of the piece that the model names for it, as `</s>`.
    Where there is none, it is a new id behind all others. So is a tag that the vocabulary lacks.

    Args:
        model: bytes, a serialized sentencepiece model.
        model_pieces: its pieces.
        vocabulary: the piece of each id, None for an id without one; None takes the model's ids.
        special: the names of `SPECIAL` to ids, None where none is given.
        tags: pieces that text never becomes. None takes the model's control pieces, and language
            codes that the model lacks: `>>fra<<`, `eng_Latn`, `__en__`.

    Raises:
        ValueError: when nothing says the id of unknown text, or special ids are the same that
            must differ.
    """
    types, names = read_types(model)
    places = {piece: place for place, piece in enumerate(model_pieces)}
    unknown = types.index("UNKNOWN")
    names = {**names, "unk_id": model_pieces[unknown]}
    pieces = list(model_pieces if vocabulary is None else vocabulary)
    ids = {piece: index for index, piece in enumerate(pieces) if piece is not None}
    if vocabulary is None:  # in the model a piece that text becomes may have a special name
        named = {n: places[p] for n, p in names.items() if not is_text(places.get(p), types)}
    else:
        named = {name: ids[piece] for name, piece in names.items() if piece in ids}
    found = special_ids(special, named, names, pieces)
    if tags is None:
        kinds = {piece: types[place] for piece, place in places.items()}
        free = [piece for piece, index in ids.items() if index not in found.values()]
        tags = [piece for piece in free if is_tag(piece, kinds.get(piece))]
    tags = list(tags)
    new = [tag for tag in tags if tag not in ids]
    ids |= {tag: index for index, tag in enumerate(new, start=len(pieces))}
    pieces += new
    tag_ids = {tag: ids[tag] for tag in tags}
    apart = {*found.values(), *tag_ids.values()}

    unk_id = found["unk_id"]
    own = range(len(types)) if vocabulary is None else [ids.get(p, unk_id) for p in model_pieces]
    from_model = [
        index if kind in TEXT_TYPES and index not in apart else unk_id
        for index, kind in zip(own, types, strict=True)
    ]
    known = [place for place, kind in enumerate(types) if kind in (*TEXT_TYPES, "UNKNOWN")]
    same = all(from_model[place] == place for place in known)
    # -> for each id its place in the model, -1 where the model lacks the piece
    read_as = [
        unknown if index in apart or piece is None else places.get(piece, -1)
        for index, piece in enumerate(pieces)
    ]
    shown = [index for index in range(len(pieces)) if index not in apart or index == unk_id]
    back = all(read_as[index] == index for index in shown)
    has_all = -1 not in read_as
    sides = list(zip(pieces, read_as, strict=True))
    return PieceIds(
        pieces=[names["unk_id"] if piece is None else piece for piece in pieces],
        surfaces=[
            "" if index in apart or piece is None else surface(piece, place >= 0 and types[place])
            for index, (piece, place) in enumerate(sides)
        ],
        special=found,
        tags=tag_ids,
        codes={p: i for p, i in ids.items() if LANGUAGE_CODE.fullmatch(p) and i not in apart},
        from_model=None if same else np.array(from_model, "int32"),
        to_model=None if back else np.array(read_as, "int32"),
        from_text=None if has_all else {p: i for p, i in ids.items() if i not in apart},
        to_text=None
        if has_all
        else [piece or "" if place < 0 else model_pieces[place] for piece, place in sides],
    )


def is_tag(piece: str, kind: str | None) -> bool:
    """Whether a piece is a tag where nothing says so, by its type, None for one of no model."""
    is_code = LANGUAGE_CODE.fullmatch(piece) or NAMED_CODE.fullmatch(piece)
    return bool(kind == "CONTROL" or (kind is None and is_code))


def is_text(place: int | None, types: Sequence[str]) -> bool:
    """Whether a place in a model has no piece, or one that text becomes."""
    return place is None or types[place] in TEXT_TYPES


def special_ids(
    given: Mapping[str, int | None],
    named: Mapping[str, int],
    names: Mapping[str, str],
    pieces: list[str | None],
) -> dict[str, int]:
    """Returns the special ids: those given, or named, or new ones, for which `pieces` grows."""
    found = {
        name: named.get(name) if given[name] is None else checked_id(name, given[name])
        for name in SPECIAL
    }
    if found["unk_id"] is None:
        raise ValueError(
            f"`vocabulary` must have the piece {names['unk_id']!r}, or `unk_id` must be given: "
            f"text that has no piece gets its id. Received: {len(pieces)} pieces without it"
        )
    size = 1 + max(index for index in found.values() if index is not None)
    pieces += [None] * (size - len(pieces))
    for name, index in found.items():
        if index is None:
            found[name] = len(pieces)
            pieces.append(names[name])
        elif pieces[index] is None:
            pieces[index] = names[name]
    pad_id, unk_id, bos_id, eos_id = found.values()
    if unk_id in (pad_id, bos_id, eos_id) or pad_id == eos_id:
        raise ValueError(
            "`unk_id` must differ from `pad_id`, `bos_id` and `eos_id`, and `pad_id` from "
            f"`eos_id`. Received: {', '.join(f'{name}={index}' for name, index in found.items())}"
        )
    return {name: int(index) for name, index in found.items() if index is not None}


def surface(piece: str, kind: str | bool) -> str:
    """Returns the text of a piece of one type; of a byte that is not ASCII ""."""
    if kind == "BYTE":
        return bytes([int(piece[3:5], 16)]).decode("ascii", "ignore")
    return piece.replace(SPACE_MARK, " ")


def checked_id(name: str, value: Any) -> int:
    """Returns an id, or raises `ValueError`."""
    value = arguments.non_negative_integer(name, value)
    if value >= MOST_IDS:
        raise ValueError(f"`{name}` must be below {MOST_IDS:,}. Received: {name}={value}")
    return value


def read_vocabulary(vocabulary: Vocabulary) -> list[str | None]:
    """Returns the piece of each id, None for an id without one.

    Args:
        vocabulary: a list of pieces, a dict of pieces to ids, or the path of a JSON file with
            either, as `vocab.json` is.

    Raises:
        ValueError: when it is something else, empty, or has a piece or an id twice.
        OSError: when the file cannot be read.
    """
    source = ""
    if isinstance(vocabulary, (str, os.PathLike)):
        source = f" in {os.fspath(vocabulary)}"
        text = Path(vocabulary).read_text(encoding="utf-8")
        try:
            vocabulary = json.loads(text, object_pairs_hook=distinct_keys)
        except ValueError as error:
            raise ValueError(f"`vocabulary`{source} must be JSON. Received: {error}") from error
    if isinstance(vocabulary, Mapping):
        ids = [checked_id("vocabulary", index) for index in vocabulary.values()]
        listed: list[Any] = [None] * (1 + max(ids, default=-1))
        for piece, index in zip(vocabulary, ids, strict=True):
            listed[index] = piece
        count = len(ids)
    elif isinstance(vocabulary, Sequence):
        listed = list(vocabulary)
        count = sum(piece is not None for piece in listed)
    else:
        listed, count = [], 0
    pieces = {piece for piece in listed if isinstance(piece, str)}
    if not pieces or len(pieces) < count:
        raise ValueError(
            f"`vocabulary`{source} must be a list of distinct pieces, or give each piece an id of "
            f"its own. Received: {len(pieces)} distinct pieces of {count}, in a "
            f"{type(vocabulary).__name__}"
        )
    return listed


def distinct_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Returns the dict of the pairs of a JSON object, or raises `ValueError` for a key twice."""
    made = dict(pairs)
    if len(made) < len(pairs):
        raise ValueError(f"{len(pairs) - len(made)} pieces stand in it twice")
    return made
