"""Against Hugging Face's tokenizers: Marian, NLLB and M2M100, from files as users have them."""

import json
import random

import pytest

tf = pytest.importorskip("tensorflow")
pytest.importorskip("tensorflow_text")
pytest.importorskip("sentencepiece")
transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.filterwarnings("ignore:Recommended. pip install sacremoses")

from keras_transformer.text import SentencePieceTokenizer  # noqa: E402
from tests.text.sentencepiece_models import processor, texts_of, train  # noqa: E402

COUNTS = [300, pytest.param(29_000, marks=pytest.mark.slow)]
CODES = ["eng_Latn", "deu_Latn", "zho_Hans"]
ALPHABET = " aeinrst.,ABCäöüß\u0301\u00a0\u2581日本😀½ﬁ<>_>><<0123\n\t\u200b"


def hostile_texts(count):
    """Texts of rare and strange characters, none with a special piece spelled out."""
    generator = random.Random(7)
    return ["".join(generator.choices(ALPHABET, k=generator.randint(0, 20))) for _ in range(count)]


@pytest.fixture(scope="module")
def corpus(shared):
    return [
        shared(f"data/multi30k/train.{language}").read_text(encoding="utf-8").splitlines()
        for language in ("en", "de")
    ]


@pytest.fixture(scope="module")
def marian(corpus, tmp_path_factory):
    """Both sides of Hugging Face's Marian, and ours, of one vocabulary that lacks some pieces."""
    folder = tmp_path_factory.mktemp("marian")
    pieces = {}
    for name, lines in zip(("source", "target"), corpus, strict=True):
        model = train(lines[:3000], vocab_size=700, model_type="unigram")
        (folder / f"{name}.spm").write_bytes(model)
        pieces |= dict.fromkeys(processor(model).id_to_piece(list(range(3, 690))))
    pieces = ["</s>", "<unk>", *sorted(pieces), ">>deu<<", ">>fra<<", "<pad>"]
    vocabulary = {piece: index for index, piece in enumerate(pieces)}
    (folder / "vocab.json").write_text(json.dumps(vocabulary), encoding="utf-8")
    theirs = transformers.MarianTokenizer.from_pretrained(folder)
    ours = [
        SentencePieceTokenizer.from_file(
            folder / f"{name}.spm", vocabulary=folder / "vocab.json", leading_tags=True
        )
        for name in ("source", "target")
    ]
    return theirs, *ours


def test_marian_has_the_same_special_ids(marian):
    theirs, *ours = marian
    for side in ours:
        assert side.eos_id == theirs.eos_token_id
        assert side.unk_id == theirs.unk_token_id
        assert side.pad_id == theirs.pad_token_id
        assert side.bos_id == side.vocab_size - 1 == len(theirs)  # which theirs has not
        assert side.tags == theirs.supported_language_codes


@pytest.mark.parametrize("count", COUNTS)
def test_marian_reads_and_writes_the_same_captions(marian, corpus, count):
    theirs, source, target = marian
    sources, targets = (side[:count] for side in corpus)
    sources = [*sources, *[f">>deu<< {text}" for text in sources[:100]], ">>xyz<<a man"]
    expected = [row[:-1] for row in theirs(sources).input_ids]
    assert source.tokenize(sources).to_list() == expected
    assert any(source.unk_id in row for row in expected)
    expected = theirs(text_target=targets).input_ids
    assert target.tokenize(targets).to_list() == [row[:-1] for row in expected]
    shown = theirs.batch_decode(
        expected,
        use_source_tokenizer=False,
        skip_special_tokens=True,
        clean_up_tokenization_spaces=False,
    )
    found = [row for row, text in enumerate(shown) if target.unk_id not in expected[row]]
    ours = texts_of(target, tf.ragged.constant(expected, tf.int32))
    assert len(found) > count // 2
    assert [ours[row] for row in found] == [shown[row] for row in found]


@pytest.mark.parametrize("count", [300, pytest.param(2000, marks=pytest.mark.slow)])
def test_marian_reads_hostile_texts_alike(marian, count):
    """Unknown characters too: those of the other side's pieces have their ids, others `<unk>`."""
    theirs, source, _ = marian
    texts = hostile_texts(count)
    assert sum(text.startswith(">>") and "<<" in text for text in texts) < count / 10
    texts += [f">>{text}<<{text}" for text in texts[:50]]
    texts += ["ü", "ß a ü", "größe"]
    assert source.unk_id not in source.tokenize(["ü"]).flat_values.numpy()
    assert 0 in processor(source.model).encode("ü")
    expected = [theirs.convert_tokens_to_ids(theirs._tokenize(text)) for text in texts]
    assert source.tokenize(texts).to_list() == expected


CODE_TEXTS = [
    ">>deu<< a man",
    ">>deu<<a man",
    ">>fra<< a man",
    ">>xyz<< a man",
    " >>deu<< a man",
    "a >>deu<< man >>fra<<",
    ">>deu<< >>deu<< a",
    ">>deu<<>>fra<<",
    ">>deu<<",
    ">><< a",
    ">>> a <<<",
    ">> deu<< a",
    ">>a<<b<< a",
    ">>deu a",
]
# Where the code `>>deu<<` is beside vocab.json; `>>fra<<` is in vocab.json alone.
CODES_IN = {
    "vocab.json alone": {},
    "symbols": {"user_defined_symbols": [">>deu<<"]},
    "controls": {"control_symbols": [">>deu<<"]},
}


@pytest.fixture(
    scope="module",
    params=[
        "controls",
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("vocab.json alone", "symbols")),
    ],
)
def marian_of_codes(request, corpus, tmp_path_factory):
    """A directory of Hugging Face's Marian, and its tokenizer."""
    folder = tmp_path_factory.mktemp("codes")
    model = train(corpus[0][:2000], vocab_size=400, **CODES_IN[request.param])
    pieces = ["</s>", "<unk>", *processor(model).id_to_piece(list(range(3, 400)))]
    pieces += [code for code in (">>deu<<", ">>fra<<", ">><<") if code not in pieces] + ["<pad>"]
    for side in ("source", "target"):
        (folder / f"{side}.spm").write_bytes(model)
    vocabulary = {piece: index for index, piece in enumerate(pieces)}
    (folder / "vocab.json").write_text(json.dumps(vocabulary), encoding="utf-8")
    return folder, transformers.MarianTokenizer.from_pretrained(folder)


def test_marian_reads_codes_wherever_they_are(marian_of_codes, tmp_path):
    """At the beginning each has the id of vocab.json, elsewhere what the model makes of it."""
    folder, theirs = marian_of_codes
    ours = SentencePieceTokenizer.from_file(
        folder / "source.spm", vocabulary=folder / "vocab.json", leading_tags=True
    )
    expected = [row[:-1] for row in theirs(CODE_TEXTS).input_ids]
    assert ours.tokenize(CODE_TEXTS).to_list() == expected
    for row, code in enumerate([">>deu<<", ">>deu<<", ">>fra<<"]):
        assert expected[row][0] == ours.tag_id(code) != ours.unk_id
    assert sorted(ours.tags) == sorted(theirs.supported_language_codes)
    found, starts, ends = ours.tokenize_with_offsets(CODE_TEXTS)
    assert found.to_list() == expected
    assert (starts[0, 0], ends[0, 0]) == (0, len(">>deu<<"))
    codes = tf.constant([">>deu<<", ">>fra<<", ">>xyz<<"])
    assert ours.tag_ids(codes).numpy().tolist() == [*(row[0] for row in expected[1:3]), -1]
    again = SentencePieceTokenizer.from_bytes(ours.to_bytes())
    assert again.tokenize(CODE_TEXTS).to_list() == expected

    module = tf.Module()
    module.served = tf.function(
        lambda text: ours.tokenize(text).to_tensor(-1),
        [tf.TensorSpec([None], tf.string)],
        autograph=False,
    )
    tf.saved_model.save(module, str(tmp_path / "saved"))
    rows = tf.saved_model.load(str(tmp_path / "saved")).served(tf.constant(CODE_TEXTS)).numpy()
    assert [[index for index in row if index >= 0] for row in rows.tolist()] == expected


def test_marian_writes_pieces_of_the_other_side_alike(marian, corpus):
    theirs, source, target = marian
    ids = source.tokenize(corpus[0][:50]).to_list()
    ids = [[index for index in row if index != source.unk_id] for row in ids]
    options = {"use_source_tokenizer": False, "clean_up_tokenization_spaces": False}
    expected = theirs.batch_decode(ids, skip_special_tokens=True, **options)
    assert texts_of(target, tf.ragged.constant(ids, tf.int32)) == expected
    assert (target._numbered.to_text or [])[ids[0][0]] is not None


@pytest.mark.parametrize("count", COUNTS)
def test_nllb_reads_the_same(corpus, tmp_path, count):
    """sentencepiece's id and one more, then language codes and `<mask>`."""
    model = train(corpus[0][:3000] + corpus[1][:3000], vocab_size=900)
    (tmp_path / "sentencepiece.bpe.model").write_bytes(model)
    theirs = transformers.NllbTokenizer.from_pretrained(
        tmp_path, src_lang="eng_Latn", additional_special_tokens=CODES
    )
    pieces = processor(model).id_to_piece(list(range(3, 900)))
    listed = ["<s>", "<pad>", "</s>", "<unk>", *pieces]
    added = {piece: index for piece, index in theirs.get_vocab().items() if index >= len(listed)}
    listed += sorted(added, key=added.get)
    ours = SentencePieceTokenizer(model, vocabulary=listed, tags=[*CODES, "<mask>"])
    assert (ours.bos_id, ours.pad_id, ours.eos_id, ours.unk_id) == (0, 1, 2, 3)
    assert ours.vocab_size == len(theirs)
    assert [ours.tag_id(code) for code in CODES] == theirs.convert_tokens_to_ids(CODES)
    assert ours._numbered.to_text is None  # a gather of ids is enough
    # Theirs is not sentencepiece: it reads some white space at the end otherwise.
    texts = [line.strip() for side in corpus for line in side[:count]]
    expected = theirs(texts).input_ids
    assert {row[0] for row in expected} == {ours.tag_id("eng_Latn")}
    found = ours.tokenize(texts).to_list()
    assert found == [row[1:-1] for row in expected]
    hostile = hostile_texts(min(count, 2000))
    expected_hostile = [
        [i + 1 if i else 3 for i in row] for row in processor(model).encode(hostile)
    ]
    assert ours.tokenize(hostile).to_list() == expected_hostile
    # Theirs may end in a space that sentencepiece drops, loses some combining marks, and reads
    # the name of a special piece as that piece.
    space = theirs.convert_tokens_to_ids("\u2581")
    alike = [text for text in hostile if "\u0301" not in text and "<s>" not in text]
    rows = [row[1:-1] for row in theirs(alike).input_ids]
    rows = [row[:-1] if row[-1:] == [space] else row for row in rows]
    assert len(alike) > len(hostile) // 2
    assert ours.tokenize(alike).to_list() == rows
    lines = expected[: 2 * count]
    shown = theirs.batch_decode(lines, skip_special_tokens=True, clean_up_tokenization_spaces=False)
    known = [row for row, ids in enumerate(lines) if ours.unk_id not in ids]
    again = texts_of(ours, tf.ragged.constant(lines, tf.int32))
    assert [again[row] for row in known] == [shown[row] for row in known]


@pytest.mark.parametrize("count", COUNTS)
def test_m2m100_reads_the_same(corpus, tmp_path, count):
    """A vocabulary of its own, which lacks some pieces, and language codes behind it."""
    model = train(corpus[0][:3000] + corpus[1][:3000], vocab_size=900)
    (tmp_path / "sentencepiece.bpe.model").write_bytes(model)
    pieces = processor(model).id_to_piece(list(range(3, 890)))
    random.Random(3).shuffle(pieces)
    vocabulary = {p: n for n, p in enumerate(["<s>", "<pad>", "</s>", "<unk>", *pieces])}
    (tmp_path / "vocab.json").write_text(json.dumps(vocabulary), encoding="utf-8")
    files = [str(tmp_path / name) for name in ("vocab.json", "sentencepiece.bpe.model")]
    theirs = transformers.M2M100Tokenizer(*files, src_lang="de", tgt_lang="fr")
    tags = list(theirs.lang_token_to_id)
    ours = SentencePieceTokenizer(model, vocabulary=tmp_path / "vocab.json", tags=tags)
    assert (ours.bos_id, ours.pad_id, ours.eos_id, ours.unk_id) == (0, 1, 2, 3)
    assert [ours.tag_id(tag) for tag in tags] == list(theirs.lang_token_to_id.values())
    texts = [*corpus[0][:count], *corpus[1][:count], *hostile_texts(min(count, 2000))]
    expected = [theirs.convert_tokens_to_ids(theirs._tokenize(text)) for text in texts]
    assert ours.tokenize(texts).to_list() == expected
    assert any(ours.unk_id in row for row in expected)
    known = [row for row in expected[: 2 * count] if ours.unk_id not in row]
    shown = theirs.batch_decode(known, skip_special_tokens=True, clean_up_tokenization_spaces=False)
    assert texts_of(ours, tf.ragged.constant(known, tf.int32)) == shown
