"""What those who call an export must know of its texts, in words."""

from keras_transformer.models.sequence_to_sequence import EXTRA_LENGTH
from keras_transformer.text import SymbolTokenizer

CANDIDATES, PROBES = 200, 20  # how many pieces of a vocabulary are tried, and read together


def text_conventions(translator):
    """What goes in and what comes out: {"input": list of str, "output": list of str}.

    Args:
        translator: a `Translator`.

    Example:

    >>> from keras_transformer import Transformer
    >>> from keras_transformer.serving import Translator
    >>> symbols = SymbolTokenizer(["t", "uː", "l"])
    >>> model = Transformer(symbols.vocab_size, num_layers=1, d_model=8, num_heads=2, d_ff=16)
    >>> text_conventions(Translator(model, symbols))["input"][0]
    'Symbols with a space between any two: "t uː l" are 3, and "tuːl" is one.'
    """
    graph, compiled = translator.graph, translator.compiled
    source, target = graph.source_tokenizer, graph.target_tokenizer
    inputs = [units_of(source)]
    words = known_words(source)
    if is_same(source, " ".join(words).upper(), " ".join(words).lower()):
        inputs.append("Capitals are read as small letters.")
    if is_same(source, "\N{LATIN SMALL LIGATURE FI}", "fi"):
        inputs.append("Variants of a character are read as one (NFKC).")
    if is_same(source, "  ".join(words), "\n".join(words)) and len(words) > 1:
        inputs.append("Runs of white space, line breaks too, are read as one space.")
    parts = f"into at most {graph.max_segments} parts"
    if graph.split_sentences:
        inputs.append("Each sentence of a text is translated on its own.")
        parts = "again"
    else:
        inputs.append("A text that fits is read whole, whatever sentences it has.")
    joined = f"What stands for the parts is joined by {graph.separator!r}."
    inputs.append(
        f"{compiled.length_sizes[-1] - 1} tokens are read at once; what is longer is divided "
        f"{parts}. {joined}"
    )
    outputs = [units_of(target)]
    letters = "".join(target.surfaces())
    if letters != letters.upper() and not any(letter.isupper() for letter in letters):
        outputs.append("Small letters alone.")
    longest = compiled.max_length
    outputs.append(
        f"At most {EXTRA_LENGTH} tokens more than were read."
        if longest is None
        else f"At most {longest} tokens, the end counted."
    )
    if target.reverse:
        outputs.append("The end is written first, and a `prefix` is what the text ends in.")
    return {"input": inputs, "output": outputs}


def units_of(tokenizer):
    """What a text of a tokenizer is made of."""
    if isinstance(tokenizer, SymbolTokenizer):
        first = tokenizer.symbols[:3]
        return (
            f'Symbols with a space between any two: "{" ".join(first)}" are {len(first)}, and '
            f'"{"".join(first)}" is one.'
        )
    return "Text as it is written, in UTF-8."


def known_words(tokenizer):
    """Some pieces with letters that have a case, which are known as words too."""
    words = [surface.strip() for surface in tokenizer.surfaces()]
    words = [word for word in words if word.lower() != word.upper()][:CANDIDATES]
    ids = tokenizer.tokenize(words).to_list()
    known = [word for word, row in zip(words, ids, strict=True) if tokenizer.unk_id not in row]
    return known[:PROBES]


def is_same(tokenizer, one, other):
    """Whether two texts have the same ids, all of them known."""
    first, second = tokenizer.tokenize([one, other]).to_list()
    return first == second and tokenizer.unk_id not in first and bool(first)
