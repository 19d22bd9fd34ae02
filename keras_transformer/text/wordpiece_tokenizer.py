"""WordPieceTokenizer: BERT's words and word pieces, learned and run with TF Text."""

from collections.abc import Iterable, Sequence
from typing import Any, Self

import numpy as np
import tensorflow as tf
import tensorflow_text as tf_text
from tensorflow_text.tools.wordpiece_vocab import bert_vocab_from_dataset

from keras_transformer import arguments
from keras_transformer.text.folding import Folding
from keras_transformer.text.strings import text_list, valid_text
from keras_transformer.text.tokenizer import Tokenizer, TokensWithOffsets

SPECIAL_PIECES = ("[PAD]", "[UNK]", "[START]", "[END]")
SUFFIX = "##"
TEXTS_PER_BATCH = 1024


class WordPieceTokenizer(Tokenizer):
    """Splits text at spaces and punctuation, then each word into the longest known pieces.

    It is lossy: `detokenize` puts one space between words ("don't" reads back as "don ' t") and
    between Chinese characters. Control and format characters, such as the zero-width non-joiner,
    are lost. A word with an unknown character, or of more than 100 bytes, is "[UNK]".
    `SentencePieceTokenizer` and `CharacterTokenizer` keep the text.

    Args:
        vocabulary: list of str, the piece of each id. It starts with "[PAD]", "[UNK]", "[START]",
            "[END]"; a piece that continues a word starts with "##".
        lower_case: whether text is lower-cased and its accents removed, as the uncased models of
            BERT have it.
        normalization: the Unicode normal form that a text gets first, "nfc" or "nfkc", or
            "identity" for none.
        lowercase: whether a text is lower-cased first, as `str.lower` does; accents stay.

    Returns:
        A tokenizer with the ids of `vocabulary`.

    Raises:
        ValueError: when `vocabulary` starts otherwise, or repeats or leaves empty a piece, or an
            option is bad.

    Example:

    >>> pieces = ["[PAD]", "[UNK]", "[START]", "[END]", "walk", "##ing", "."]
    >>> tokenizer = WordPieceTokenizer(pieces, lower_case=True)
    >>> tokenizer.tokenize(["Walking.", "run"])
    <tf.RaggedTensor [[4, 5, 6], [1]]>
    >>> tokenizer.detokenize([[4, 5, 6, 3]]).numpy().tolist()
    [b'walking .']
    """

    def __init__(
        self,
        vocabulary: Iterable[str],
        lower_case: bool = False,
        normalization: str = "identity",
        lowercase: bool = False,
    ) -> None:
        vocabulary = text_list("vocabulary", vocabulary)
        if tuple(vocabulary[: len(SPECIAL_PIECES)]) != SPECIAL_PIECES:
            raise ValueError(
                f"`vocabulary` must start with {', '.join(SPECIAL_PIECES)}. "
                f"Received: vocabulary={vocabulary[:5]}..."
            )
        broken = any(not piece.removeprefix(SUFFIX) or "\n" in piece for piece in vocabulary)
        if broken or len(set(vocabulary)) < len(vocabulary):
            raise ValueError(
                "`vocabulary` must hold distinct pieces, none empty and none with a line break. "
                f"Received: vocabulary of {len(vocabulary)} pieces, {len(set(vocabulary))} distinct"
            )
        self.lower_case = arguments.boolean("lower_case", lower_case)
        super().__init__(vocabulary, Folding(normalization, lowercase))

    @classmethod
    def train(
        cls,
        texts: Iterable[str],
        vocab_size: int = 8000,
        lower_case: bool = False,
        normalization: str = "identity",
        lowercase: bool = False,
    ) -> Self:
        """Learns word pieces with TF Text's vocabulary tool, never more than `vocab_size`.

        A small corpus gives a smaller vocabulary. Each of the most frequent characters has its
        two pieces, at the start of a word and inside one, as far as `vocab_size` allows.

        Args:
            texts: iterable of str.
            vocab_size: the largest vocabulary, special ids included.
            lower_case: whether text is lower-cased and its accents removed, as the uncased models
                of BERT have it.
            normalization: the Unicode normal form that every text gets first, "nfc" or "nfkc", or
                "identity" for none.
            lowercase: whether every text is lower-cased first, as `str.lower` does; accents stay.

        Returns:
            A tokenizer of the pieces that were learned, the special ids before them.

        Raises:
            TypeError: when `texts` is not an iterable of str.
            ValueError: when `texts` hold no word, or `vocab_size` leaves no room for a character,
                or an option is bad.

        Example:

        >>> WordPieceTokenizer.train(["to be or not to be"] * 9, vocab_size=20).pieces([4, 5, 6])
        ['b', 'e', 'n']
        """
        lower_case = arguments.boolean("lower_case", lower_case)
        vocab_size = arguments.positive_integer("vocab_size", vocab_size)
        folding = Folding(normalization, lowercase)
        smallest = len(SPECIAL_PIECES) + 2
        if vocab_size < smallest:
            raise ValueError(
                f"`vocab_size` must be at least {smallest}. Received: vocab_size={vocab_size}"
            )
        texts = [valid_text(text) for text in text_list("texts", texts)]
        if not any(text.strip() for text in texts):
            raise ValueError("`texts` must hold at least one word. Received: only empty texts")
        learned = _learn(folding.fold_texts(texts), vocab_size, lower_case)
        if len(learned) <= len(SPECIAL_PIECES):
            raise ValueError(
                "`vocab_size` must be larger, or `texts` hold ordinary words: no piece was "
                f"learned. Received: vocab_size={vocab_size} and {len(texts)} texts"
            )
        return cls(trim(learned, vocab_size), lower_case, normalization, lowercase)

    def tokenize_graph(self, strings: tf.Tensor) -> tf.RaggedTensor:
        """Runs TF Text's fast tokenizer, built while tracing."""
        return self._op().tokenize(strings)

    def tokenize_with_offsets_graph(self, strings: tf.Tensor) -> TokensWithOffsets:
        """Runs TF Text's fast tokenizer, built while tracing."""
        return TokensWithOffsets(*self._op().tokenize_with_offsets(strings))

    def detokenize_graph(self, ids: tf.RaggedTensor) -> tf.Tensor:
        """Joins the pieces of each row, with a space before each that starts a word."""
        table = tf.constant(np.array([text.encode() for text in self.surfaces()], dtype=object))
        pieces = ids.with_flat_values(tf.gather(table, ids.flat_values))
        return tf.strings.regex_replace(tf.strings.reduce_join(pieces, axis=1), "^ ", "")

    def surfaces(self) -> list[str]:
        """The pieces, with a space before each that starts a word."""
        return [
            piece.removeprefix(SUFFIX) if piece.startswith(SUFFIX) else f" {piece}"
            for piece in self._vocabulary
        ]

    def _op(self) -> Any:
        return tf_text.FastBertTokenizer(
            self._vocabulary,
            token_out_type=tf.int32,
            unknown_token=SPECIAL_PIECES[self.unk_id],
            lower_case_nfd_strip_accents=self.lower_case,
        )

    def _options_and_payload(self) -> tuple[dict[str, Any], bytes]:
        options = {"lower_case": self.lower_case} | self._folding.options()
        return options, "\n".join(self._vocabulary).encode()

    @classmethod
    def from_payload(cls, options: dict[str, Any], payload: bytes) -> Self:
        """Rebuilds a tokenizer from its pieces, one a line, in UTF-8."""
        return cls(payload.decode().split("\n"), **options)


def _learn(texts: Sequence[str], vocab_size: int, lower_case: bool) -> list[str]:
    """Returns the pieces that TF Text's tool learns, about `vocab_size` of them."""
    dataset = tf.data.Dataset.from_tensor_slices(np.array(texts, dtype=object))
    try:
        return bert_vocab_from_dataset.bert_vocab_from_dataset(
            dataset.batch(TEXTS_PER_BATCH),
            vocab_size,
            list(SPECIAL_PIECES),
            bert_tokenizer_params={"lower_case": lower_case},
            learn_params={
                "lower_thresh": 2,
                "max_unique_chars": min(1000, (vocab_size - len(SPECIAL_PIECES)) // 2),
            },
        )
    except (StopIteration, ValueError):  # its way of saying that there is no word to learn from
        return []


def trim(vocabulary: list[str], vocab_size: int) -> list[str]:
    """Returns the first pieces that fit, keeping the special and one-character pieces first."""
    if len(vocabulary) <= vocab_size:
        return vocabulary
    needed = {piece for piece in vocabulary if len(piece.removeprefix(SUFFIX)) == 1}
    needed.update(SPECIAL_PIECES)
    room = vocab_size - len(needed)
    longer = [piece for piece in vocabulary if piece not in needed][:room]
    kept = needed.union(longer)
    return [piece for piece in vocabulary if piece in kept]
