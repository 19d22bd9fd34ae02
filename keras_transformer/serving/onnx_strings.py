"""An ONNX search with its texts: strings in and out, by operations of onnxruntime-extensions."""

from typing import TYPE_CHECKING, Any, cast

from keras_transformer.decoding.search import IMPOSSIBLE
from keras_transformer.serving.portable_files import has_own_ids
from keras_transformer.text import SentencePieceTokenizer
from keras_transformer.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from onnx import ModelProto

    from keras_transformer.serving.translator import Translator

EXTENSIONS = "ai.onnx.contrib"  # the domain of onnxruntime-extensions
# Before the search. CAPITALS are numbers of the translator.
READ = """
read (string[batch] text) => (int32[batch, source] source_ids)
<int64[1] zero = {0}, int64[1] one = {1}, int64[1] minus_one = {-1}, int64[1] most = {MOST},
 int64 first_place = {0}, int64 step = {1}, int64 longest = {LONGEST}, int64 num_ends = {ENDS},
 int64[1] sampled = {0}, float[1] smoothing = {0}, bool[1] no = {0},
 int32[1] pad = {PAD}, int32 last = {LAST}>
{
    text_pieces, text_starts =
        ai.onnx.contrib.SentencepieceTokenizer (text, sampled, smoothing, no, no, no)
    text_first = Slice (text_starts, zero, minus_one)
    text_end = Slice (text_starts, one, most)
    text_counts = Sub (text_end, text_first)
    truncated = Greater (text_counts, longest)
    text_read = Min (text_counts, longest)
    text_widest = ReduceMax <keepdims = 0> (text_read)
    text_ended = Add (text_widest, num_ends)
    text_width = Max (text_ended, step)
    text_places = Range (first_place, text_width, step)
    text_column = Unsqueeze (text_read, one)
    text_is_piece = Less (text_places, text_column)
    text_offset = Unsqueeze (text_first, one)
    text_from = Add (text_offset, text_places)
    text_size = Size (text_pieces)
    text_index = Min (text_from, text_size)
    text_padded = Concat <axis = 0> (text_pieces, pad)
    text_ids = Gather (text_padded, text_index)
    text_is_end = Equal (text_places, text_column)
    text_behind = Where (text_is_end, last, pad)
    source_ids = Where (text_is_piece, text_ids, text_behind)
}
"""
# After the search. A refused text and a hypothesis that was not found are "", with IMPOSSIBLE.
WRITE = """
write (int32[batch, hypotheses, length] ids, float[batch, hypotheses] found_scores,
       int64[batch] text_counts, bool[batch] truncated)
=> (string[batch, hypotheses] translations, float[batch, hypotheses] scores)
<int64 none = {0}, float no_score = {0}, float half = {HALF}, float impossible = {IMPOSSIBLE},
 string nothing = {""}, bool yes = {1}, int64[1] any = {-1}, int64[1] second = {1},
 int32 pad_id = {PAD}, int32 bos_id = {BOS}, int32 eos_id = {EOS},
 int32 unk_id = {UNK}, int32 num_pieces = {PIECES}>
{
    write_length = Shape <start = 2> (ids)
    write_shape = Concat <axis = 0> (any, write_length)
    write_rows = Reshape (ids, write_shape)
    write_count = Size (found_scores)
    write_texts = Loop (write_count, yes) <body = write_row (int64 row, bool again)
        => (bool still, string row_text) {
            row_ids = Gather (write_rows, row)
            row_pad = Equal (row_ids, pad_id)
            row_bos = Equal (row_ids, bos_id)
            row_eos = Equal (row_ids, eos_id)
            row_outer = Or (row_pad, row_bos)
            row_special = Or (row_outer, row_eos)
            row_is_text = Not (row_special)
            row_kept = Compress <axis = 0> (row_ids, row_is_text)
            row_has_piece = Less (row_kept, num_pieces)
            row_known = Where (row_has_piece, row_kept, unk_id)
            row_pieces = Cast <to = 7> (row_known)
            row_texts = ai.onnx.contrib.SentencepieceDecoder (row_pieces)
            row_text = Squeeze (row_texts)
            still = Identity (again)
        }>
    write_table = Shape (found_scores)
    write_all = Reshape (write_texts, write_table)
    write_no_text = Equal (text_counts, none)
    write_empty = Unsqueeze (write_no_text, second)
    write_refused = Unsqueeze (truncated, second)
    write_scores = Where (write_empty, no_score, found_scores)
    write_lost = LessOrEqual (write_scores, half)
    write_none = Or (write_refused, write_lost)
    scores = Where (write_none, impossible, write_scores)
    write_hidden = Or (write_none, write_empty)
    translations = Where (write_hidden, nothing, write_all)
}
"""


def check_translator(translator: "Translator") -> None:
    """Raises `ValueError` for a translator whose texts the operations do not read and write."""
    if translator.split_sentences:
        raise ValueError(
            "`strings=True` translates each text as one sentence. Received: split_sentences=True"
        )
    tags = {"source_tag": translator.source_tag, "target_tag": translator.target_tag}
    for name, tag in tags.items():
        if tag is not None:
            raise ValueError(f"`strings=True` knows no tags. Received: {name}={tag!r}")
    tokenizers = {"source": translator.source_tokenizer, "target": translator.target_tokenizer}
    for side, tokenizer in tokenizers.items():
        reason = other_tokens(tokenizer)
        if reason is not None:
            raise ValueError(
                "`strings=True` needs SentencePiece vocabularies that onnxruntime-extensions reads "
                f"as they are. Received: a {side} vocabulary {reason}"
            )


def other_tokens(tokenizer: Tokenizer) -> str | None:
    """Returns why the operations give other tokens than a tokenizer, or None."""
    if not isinstance(tokenizer, SentencePieceTokenizer):
        return f"of {type(tokenizer).__name__}"
    options = {
        "lossless": tokenizer.lossless,
        "lowercase": tokenizer.lowercase,
        "leading_tags": tokenizer.leading_tags,
    }
    for name, is_on in options.items():
        if is_on:
            return f"with {name}=True"
    if tokenizer.normalization != "identity":
        return f"with normalization={tokenizer.normalization!r}"
    own_ids = has_own_ids(tokenizer) or not tokenizer.has_model_ids
    return "with ids of its own" if own_ids else None


def with_strings(model: "ModelProto", translator: "Translator") -> "ModelProto":
    """Returns the ONNX model of a search with texts in place of ids, as `export_onnx` says.

    Args:
        model: the model that `to_onnx` made.
        translator: a `Translator` that `check_translator` has passed.
    """
    from onnx import checker, helper

    trained = translator.model
    source, target = (
        cast("SentencePieceTokenizer", tokenizer)  # `check_translator` refuses others
        for tokenizer in (translator.source_tokenizer, translator.target_tokenizer)
    )
    numbers = {
        "PAD": trained.pad_id,
        "BOS": trained.bos_id,
        "EOS": trained.eos_id,
        "UNK": target.unk_id,
        "PIECES": target.vocab_size,  # the model may have more tokens
        "LAST": trained.eos_id if translator.source_eos else trained.pad_id,
        "ENDS": int(translator.source_eos),
        "LONGEST": translator.max_source_length - translator.source_eos,
        "MOST": 2**31 - 1,
        "HALF": IMPOSSIBLE / 2,
        "IMPOSSIBLE": IMPOSSIBLE,
    }
    read, write = (parse(text, numbers) for text in (READ, WRITE))
    set_vocabulary(read, "SentencepieceTokenizer", source.model)
    set_vocabulary(write, "SentencepieceDecoder", target.model)
    nodes = list(model.graph.node)
    for node in nodes:
        node.output[:] = ["found_scores" if name == "scores" else name for name in node.output]
    truncated = next(value for value in write.input if value.name == "truncated")
    graph = helper.make_graph(
        [*read.node, *nodes, *write.node],
        model.graph.name,
        [*read.input],
        [*write.output, truncated],
        [*read.initializer, *model.graph.initializer, *write.initializer],
    )
    opsets = [*model.opset_import, helper.make_opsetid(EXTENSIONS, 1)]
    made = helper.make_model(graph, opset_imports=opsets, ir_version=model.ir_version)
    checker.check_model(made)
    return made


def parse(text: str, numbers: dict[str, Any]) -> Any:
    """Returns the graph of a text in which `numbers` stand by their names."""
    from onnx import parser

    for name, number in numbers.items():
        text = text.replace(f"{{{name}}}", f"{{{number}}}")
    return parser.parse_graph(text)


def set_vocabulary(graph: Any, kind: str, vocabulary: bytes) -> None:
    """Gives each operation of a kind its sentencepiece model."""
    from onnx import helper

    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                set_vocabulary(attribute.g, kind, vocabulary)
        if node.op_type == kind:
            node.attribute.append(helper.make_attribute("model", vocabulary))
