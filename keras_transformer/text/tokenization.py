"""All texts of a corpus as ids."""

import sys
import time

import numpy as np

from keras_transformer.batches.token_store import TokenStore

TEXTS_PER_CALL = 4096
SECONDS_BETWEEN_LINES = 5.0


def tokenize_all(texts, tokenizer, name, verbose):
    """Returns the `TokenStore` of a list of texts; says how far it is when that takes long."""
    flats, lengths = [np.zeros(0, "int32")], [np.zeros(1, "int64")]
    last_line = time.monotonic()
    for start in range(0, len(texts), TEXTS_PER_CALL):
        ids = tokenizer.tokenize(texts[start : start + TEXTS_PER_CALL])
        flats.append(ids.flat_values.numpy())
        lengths.append(ids.row_lengths().numpy())
        if verbose and time.monotonic() - last_line > SECONDS_BETWEEN_LINES:
            last_line = time.monotonic()
            done = min(start + TEXTS_PER_CALL, len(texts))
            print(f"tokenized {done:,} of {len(texts):,} {name} texts", file=sys.stderr)
    return TokenStore(np.concatenate(flats), np.cumsum(np.concatenate(lengths)))
