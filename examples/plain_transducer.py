"""Texts in, texts out, on JAX and PyTorch; and the lines that export the same with TensorFlow."""

import sys

import keras
import numpy as np

from keras_transformer import BeamSearch
from plain_vocabulary import BOS_ID, EOS_ID, PAD_ID, Subwords

FEW = 0.05  # of the texts, the longest, are searched apart where they are twice as long
EXPORT = """\
To serve it, where TensorFlow is installed:
    import os
    os.environ["KERAS_BACKEND"] = "tensorflow"
    import keras
    from keras_transformer import {search_class}
    from keras_transformer.serving import Translator
    from keras_transformer.text import {tokenizer}
    model = keras.saving.load_model({model!r})
    with open({vocabulary!r}, {mode}) as file:
        source = {tokenizer}({read})
    translator = Translator(
        model, source{target}, search={search},
        max_length={max_length}, max_source_length={max_source_length},
    )
    translator.export({export!r})
"""


class Generator(keras.Model):
    """Gives the best output of each source: on JAX `predict` compiles the search once a shape."""

    def __init__(self, model, search, max_length):
        super().__init__()
        self.model, self.search, self.max_length = model, search, max_length

    def call(self, source_ids):
        """Returns ids (batch, max_length)."""
        return self.model.generate(source_ids, self.search, self.max_length).ids[:, 0]


class Transducer:
    """Gives the output of each of a list of texts, in batches of one or two shapes.

    Args:
        model: a `Transformer`.
        vocabularies: of sources and targets.
        search: a search of the package.
        max_length: the most tokens of an output.
        tokens_per_batch: source tokens at once, padding included.
        progress: whether to say how far it is.
    """

    def __init__(self, model, vocabularies, search, max_length, tokens_per_batch, progress=False):
        self.generator = Generator(model, search, max_length)
        self.source, self.target = vocabularies
        self.tokens_per_batch = tokens_per_batch
        self.progress = progress

    def __call__(self, texts):
        rows = [[*self.source.encode(text), EOS_ID] for text in texts]
        order = sorted(range(len(rows)), key=lambda number: len(rows[number]))
        outputs = [None] * len(rows)
        place = round((1 - FEW) * len(order))
        if len(rows[order[-1]]) <= 2 * len(rows[order[place - 1]]):
            place = len(order)
        for members in filter(None, (order[:place], order[place:])):
            found = self.search([rows[number] for number in members])
            for number, row in zip(members, found, strict=True):
                outputs[number] = self.text_of(row.tolist())
        return outputs

    def search(self, rows):
        """The outputs of rows of ids, an array (rows, max_length)."""
        longest = max(map(len, rows))
        batch_size = min(len(rows), max(1, self.tokens_per_batch // longest))
        num_rows = -(-len(rows) // batch_size) * batch_size  # a last batch is filled with padding
        source_ids = np.full((num_rows, longest), PAD_ID, "int32")
        for place, row in zip(source_ids, rows, strict=False):
            place[: len(row)] = row
        verbose = int(self.progress and sys.stdout.isatty())
        found = self.generator.predict(source_ids, batch_size=batch_size, verbose=verbose)
        if self.progress:
            print(f"  {len(rows):,} texts of at most {longest} tokens are done", flush=True)
        return found[: len(rows)]

    def text_of(self, ids):
        """The text of an output, without what follows its end."""
        ids = ids[: ids.index(EOS_ID)] if EOS_ID in ids else ids
        return self.target.decode([number for number in ids if number not in (PAD_ID, BOS_ID)])


def how_to_export(path, vocabulary, search, max_length, max_source_length, reverse):
    """The lines of Python that write the SavedModel of strings.

    Args:
        path: of the run's directory, with model.keras.
        vocabulary: that of the sources.
        search: a `GreedySearch` or `BeamSearch`.
        max_length: the most tokens of an output.
        max_source_length: the most tokens of a source, `eos_id` included.
        reverse: whether targets are written from the last symbol to the first.
    """
    if isinstance(vocabulary, Subwords):
        options = [f", {name}={value!r}" for name, value in vocabulary.options.items()]
        names = dict(tokenizer="SentencePieceTokenizer", mode='"rb"')
        names["read"] = "".join(["file.read()", *options])
    else:
        names = dict(tokenizer="SymbolTokenizer", mode='encoding="utf-8"')
        names["read"] = 'file.read().split(" ")'
    names |= dict(search_class="GreedySearch", search="GreedySearch()")
    if isinstance(search, BeamSearch):
        made = f"BeamSearch({search.beam_size}, {search.length_penalty})"
        names |= dict(search_class="BeamSearch", search=made)
    return EXPORT.format(
        model=str(path / "model.keras"),
        vocabulary=str(path / f"vocabulary{vocabulary.suffix}"),
        export=str(path / "export" / "1"),
        target=", SymbolTokenizer(source.symbols, reverse=True)" if reverse else "",
        max_length=max_length,
        max_source_length=max_source_length,
        **names,
    ).rstrip()
