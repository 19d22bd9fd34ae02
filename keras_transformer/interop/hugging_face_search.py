"""Reads the search of a Hugging Face directory: its settings, and the longest output.

They stood in config.json before they got generation_config.json, a file of their own. What no
search here has is refused by name, unless it has no effect.
"""

from collections.abc import Mapping
from typing import Any, Literal

from keras_transformer.decoding import BeamSearch, GreedySearch, Search
from keras_transformer.decoding.search import LARGEST_LENGTH_PENALTY
from keras_transformer.interop.files import (
    MAX_BEAMS,
    MAX_SIZE,
    checked_flag,
    checked_integer,
    checked_number,
    shown,
)
from keras_transformer.interop.hugging_face_form import M2M100, find_family
from keras_transformer.models import Transformer

# Settings that nothing here has, with the values that have no effect. None has none either.
NEUTRAL: dict[str, tuple[Any, ...]] = {
    "num_beam_groups": (1,),
    "diversity_penalty": (0.0,),
    "encoder_repetition_penalty": (1.0,),
    "encoder_no_repeat_ngram_size": (0,),
    "exponential_decay_length_penalty": (),
    "begin_suppress_tokens": ([],),
    "sequence_bias": (),
    "force_words_ids": ([],),
    "constraints": ([],),
    "penalty_alpha": (0.0,),
    "dola_layers": (),
    "guidance_scale": (1.0,),
    "watermarking_config": (),
    "stop_strings": ([],),
    "max_time": (),
    "token_healing": (False,),
    "force_bos_token_to_be_generated": (False,),
}
# `forced_eos_token_id` acts where an output is cut, and is often another id than the end.
HELD = (
    *("num_beams", "length_penalty", "early_stopping", "bad_words_ids", "suppress_tokens"),
    *("renormalize_logits", "forced_bos_token_id", "repetition_penalty"),
    *("no_repeat_ngram_size", "do_sample", "decoder_start_token_id", "min_length"),
    *("min_new_tokens", "max_length", "max_new_tokens"),
)
SEARCH_SETTINGS = (*HELD, *NEUTRAL)
WHERE = "generation_config.json or config.json"
SMALLEST_PENALTY, LARGEST_PENALTY = 0.01, 100.0  # of repetitions
LONGEST_OUTPUT = 2**20


def make_search(config: Mapping[str, Any], model: Transformer) -> Search:
    """Returns the search that the settings describe, or raises `ValueError`."""
    if flag(config, "do_sample"):
        raise ValueError(
            "generation_config.json: `do_sample` must be false; give `search=Sampling(...)`. "
            "Received: True"
        )
    beams = integer(config, "num_beams", 1, least=1, most=MAX_BEAMS)
    repetition_penalty = number(
        config, "repetition_penalty", 1.0, SMALLEST_PENALTY, LARGEST_PENALTY
    )
    only = dict(NEUTRAL)
    if find_family(config) is not M2M100:  # whose target language it is
        only["forced_bos_token_id"] = ()
    # For beams it changes log-probabilities there, logits here. There it counts the start, too,
    # which is the end in M2M100.
    if beams != 1 or model.bos_id == model.eos_id:
        only["repetition_penalty"] = (1.0,)
    for name, neutral in only.items():
        value = config.get(name)
        if value is not None and not any(is_same(value, known) for known in neutral):
            rule = shown(neutral[0]) if neutral else "null"
            raise ValueError(
                f"`{name}` must be {rule}; give `search=` instead. Received: {shown(value)}"
            )
    suppressed = suppressed_ids(config, model.vocabulary_sizes[1], model.eos_id)
    # The search never writes these by itself.
    suppressed -= {model.pad_id, model.bos_id} - {model.eos_id}
    new_tokens = integer(config, "min_new_tokens", 0)
    # Whatever the flag says, a forced token has all the probability.
    forced = "prefix" if find_family(config) is M2M100 else False
    options: dict[str, Any] = {
        "suppressed_ids": sorted(suppressed),
        "repetition_penalty": repetition_penalty,
        "no_repeat_ngram_size": integer(config, "no_repeat_ngram_size", 0),
        # There `min_length` counts the start, here the end.
        "min_length": max(integer(config, "min_length", 0), new_tokens and new_tokens + 1),
        "renormalize": flag(config, "renormalize_logits") or forced,
    }
    if beams == 1:
        return GreedySearch(**options)
    return BeamSearch(
        beams,
        number(config, "length_penalty", 1.0, 0, LARGEST_LENGTH_PENALTY),
        num_hypotheses=1,
        early_stopping=read_early_stopping(config),
        length_formula="power",
        **options,
    )


def read_early_stopping(config: Mapping[str, Any]) -> bool | Literal["current_length"]:
    """Returns when a beam search stops: there false is a guess, and "never" is exact."""
    if config.get("early_stopping") == "never":
        return False
    return True if flag(config, "early_stopping") else "current_length"


def longest_output(config: Mapping[str, Any]) -> int | None:
    """Returns the largest number of tokens of an output, the end included; None where none is."""
    found = None
    # The first counts the start too. The second wins.
    for name, more in (("max_length", 1), ("max_new_tokens", 0)):
        if config.get(name) is not None:
            found = checked_integer(WHERE, name, config[name], 1 + more, LONGEST_OUTPUT) - more
    return found


def suppressed_ids(config: Mapping[str, Any], vocab_size: int, eos_id: int) -> set[int]:
    """Returns the ids that may not be written, or raises `ValueError`.

    As in Hugging Face, `bad_words_ids` does not forbid the end, and `suppress_tokens` does.
    """
    lists = []
    for name in ("suppress_tokens", "bad_words_ids"):
        listed = config.get(name)
        if listed is not None and not isinstance(listed, list):
            raise ValueError(f"`{name}` must be a list. Received: {shown(listed)}")
        lists.append(listed or [])
    single, words = lists
    for word in words:
        if not isinstance(word, list) or len(word) != 1:
            raise ValueError(
                "`bad_words_ids` must name single tokens; give `search=` instead. "
                f"Received: {shown(word)}"
            )
    ids = [*single, *(word[0] for word in words)]
    for index in ids:
        if type(index) is not int or not 0 <= index < vocab_size:
            raise ValueError(
                f"`suppress_tokens` and `bad_words_ids` must be ids from 0 to {vocab_size - 1}. "
                f"Received: {shown(index)}"
            )
    return {*single, *(word[0] for word in words if word[0] != eos_id)}


def is_same(value: Any, known: Any) -> bool:
    """Whether a value is a known one; true is another value than 1."""
    return (type(value) is bool) == (type(known) is bool) and value == known


def flag(config: Mapping[str, Any], name: str) -> bool:
    """Returns a setting that is true or false, False where there is none."""
    return config.get(name) is not None and checked_flag(WHERE, name, config[name])


def integer(
    config: Mapping[str, Any], name: str, default: int, least: int = 0, most: int = MAX_SIZE
) -> int:
    """Returns a setting that is an integer, `default` where there is none."""
    value = config.get(name)
    return default if value is None else checked_integer(WHERE, name, value, least, most)


def number(
    config: Mapping[str, Any], name: str, default: float, least: float, most: float
) -> float:
    """Returns a setting that is a number, `default` where there is none."""
    value = config.get(name)
    return default if value is None else checked_number(WHERE, name, value, least, most)
