"""NLLB, M2M100 and Marian of several languages: their directories, codes and translations."""

import json
import shutil

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytest.importorskip("sentencepiece")

from keras_transformer.interop import load_ctranslate2, load_hugging_face  # noqa: E402
from keras_transformer.text import translation_dataset  # noqa: E402
from tests.interop.hugging_face_models import random_model, save  # noqa: E402
from tests.text.sentencepiece_models import processor, train  # noqa: E402

pytestmark = [
    pytest.mark.parity,
    pytest.mark.filterwarnings("ignore:Recommended. pip install sacremoses"),
]

CODES = ["eng_Latn", "deu_Latn", "zho_Hans"]
TEXTS = [
    "A man rides a horse on the beach .",
    "Two dogs play with a red ball .",
    "Zwei Hunde spielen im Schnee .",
]
SEARCH = {"num_beams": 3, "early_stopping": "never", "no_repeat_ngram_size": 2, "max_length": 14}


@pytest.fixture(scope="module")
def lines(shared):
    return [
        line
        for language in ("en", "de")
        for line in shared(f"data/multi30k/train.{language}")
        .read_text(encoding="utf-8")
        .splitlines()[:2000]
    ]


@pytest.fixture(scope="module", params=["saved", "downloaded"])
def nllb(request, lines, tmp_path_factory):
    """A directory of NLLB as `save_pretrained` writes it, or with the files of older versions."""
    model = train(lines, vocab_size=500)
    folder = tmp_path_factory.mktemp("nllb")
    (folder / "sentencepiece.bpe.model").write_bytes(model)
    tokenizer = transformers.NllbTokenizer.from_pretrained(
        folder, src_lang="eng_Latn", additional_special_tokens=CODES
    )
    theirs = random_model(
        "m2m_100",
        vocab_size=len(tokenizer),
        pad_token_id=1,
        bos_token_id=0,
        eos_token_id=2,
        decoder_start_token_id=2,
        activation_function="relu",
    )
    # What our searches never write, and pieces that keep their share of the probability.
    save(theirs, folder, **SEARCH, suppress_tokens=[1, 5, 9, 13])
    if request.param == "saved":
        tokenizer.save_pretrained(folder)
    else:
        settings = {"additional_special_tokens": [*CODES, "<mask>"]}
        ids = sorted(range(len(tokenizer)), reverse=True)[: len(CODES) + 1]
        listed = [tokenizer.convert_ids_to_tokens(index) for index in sorted(ids)]
        settings["additional_special_tokens"] = listed
        path = folder / "special_tokens_map.json"
        path.write_text(json.dumps(settings), encoding="utf-8")
    return folder, theirs, tokenizer


def their_translations(theirs, tokenizer, forced):
    """Translations by the search of their directory, with the scores."""
    found = theirs.generate(
        **tokenizer(TEXTS, padding=True, return_tensors="pt"),
        forced_bos_token_id=forced,
        return_dict_in_generate=True,
        output_scores=True,
    )
    texts = tokenizer.batch_decode(found.sequences, skip_special_tokens=True)
    return texts, found.sequences_scores.numpy()


def check_translations(ours, expected, scores):
    """Checks that our best translations and their scores are those expected."""
    best = [hypotheses[0] for hypotheses in ours.n_best(TEXTS)]
    assert [text for text, _ in best] == expected
    np.testing.assert_allclose([score for _, score in best], scores, atol=1e-4)
    assert len(set(expected)) > 1


def test_nllb_translates_from_one_language_to_another(nllb):
    folder, theirs, tokenizer = nllb
    ours = load_hugging_face(folder, "eng_Latn", "deu_Latn", max_length=13, jit_compile=False)
    assert set(CODES) <= set(ours.source_tokenizer.tags)
    theirs = transformers.M2M100ForConditionalGeneration.from_pretrained(folder)
    forced = tokenizer.convert_tokens_to_ids("deu_Latn")
    expected, scores = their_translations(theirs, tokenizer, forced)
    check_translations(ours, expected, scores)
    with pytest.raises(ValueError, match="`target_language` must be a language of the model"):
        load_hugging_face(folder, "eng_Latn", "xx")
    with pytest.raises(ValueError, match="`source_language` must be a language of the model"):
        load_hugging_face(folder, target_language="deu_Latn")


@pytest.mark.parametrize("nllb", ["saved"], indirect=True)
def test_nllb_saved_to_a_fresh_folder_needs_the_file_of_its_pieces(nllb, tmp_path):
    # transformers 5 writes tokenizer.json alone.
    folder, theirs, tokenizer = nllb
    save(theirs, tmp_path, **SEARCH)
    tokenizer.save_pretrained(tmp_path)
    assert not (tmp_path / "sentencepiece.bpe.model").exists()
    with pytest.raises(ValueError, match=r"must hold sentencepiece\.bpe\.model; copy it") as caught:
        load_hugging_face(tmp_path, "eng_Latn", "deu_Latn")
    assert str(caught.value).endswith("Received: tokenizer.json alone")
    assert "\n" not in str(caught.value)
    shutil.copy(folder / "sentencepiece.bpe.model", tmp_path)
    ours = load_hugging_face(tmp_path, "eng_Latn", "deu_Latn", jit_compile=False)
    assert set(CODES) <= set(ours.source_tokenizer.tags)
    expected = tokenizer(TEXTS)["input_ids"]
    ids = ours.source_tokenizer.tokenize(TEXTS).to_list()
    assert [row[1:-1] for row in expected] == ids  # between the code and the end


def converted(folder, directory, *files):
    """What CTranslate2's own converter makes of a directory."""
    ctranslate2 = pytest.importorskip("ctranslate2")
    converter = ctranslate2.converters.TransformersConverter(str(folder), copy_files=[*files])
    converter.convert(str(directory))
    return directory


@pytest.mark.parametrize("nllb", ["saved"], indirect=True)
def test_what_ctranslate2_made_of_nllb_keeps_the_end_and_the_codes(nllb, tmp_path):
    folder, _, _ = nllb
    directory = converted(folder, tmp_path / "ct2", "sentencepiece.bpe.model")
    options = {"max_length": 13, "jit_compile": False}
    wanted = load_hugging_face(folder, "eng_Latn", "deu_Latn", **options)
    tags = {"source_tag": "eng_Latn", "target_tag": "deu_Latn"}
    with pytest.warns(UserWarning, match="sources end in '</s>' here"):
        found = load_ctranslate2(directory, search=wanted.search, **tags, **options)
    assert found.source_eos
    assert set(CODES) <= set(found.source_tokenizer.tags)
    assert found(TEXTS) == wanted(TEXTS)
    with pytest.warns(UserWarning, match="sources must begin with the code of a language"):
        load_ctranslate2(directory, source_eos=True, **options)


@pytest.mark.slow
@pytest.mark.parametrize("nllb", ["saved"], indirect=True)
def test_what_ctranslate2_made_of_nllb_is_imported_by_the_command_of_the_page(nllb, tmp_path):
    """The command of docs/interop.md, on a directory that CTranslate2's own converter wrote."""
    ctranslate2 = pytest.importorskip("ctranslate2")
    from keras_transformer.commands.main import main
    from keras_transformer.recipes import load_translator

    folder, _, tokenizer = nllb
    converted(folder, tmp_path / "nllb-ct2", "sentencepiece.bpe.model")
    command = f"import {tmp_path}/nllb-ct2 --source-tag eng_Latn --target-tag deu_Latn "
    command += f"--output {tmp_path}/runs/nllb"
    with pytest.warns(UserWarning, match="sources end in '</s>' here"):
        assert main(command.split()) == 0
    engine = ctranslate2.Translator(str(tmp_path / "nllb-ct2"), intra_threads=1)
    rows = [tokenizer.convert_ids_to_tokens(row) for row in tokenizer(TEXTS)["input_ids"]]
    assert {(row[0], row[-1]) for row in rows} == {("eng_Latn", "</s>")}
    found = engine.translate_batch(
        rows,
        target_prefix=[["deu_Latn"]] * len(rows),
        max_decoding_length=13,
        suppress_sequences=[["<pad>"]],  # what our searches never write
        return_scores=True,
    )
    ids = [tokenizer.convert_tokens_to_ids(result.hypotheses[0][1:]) for result in found]
    options = {"max_length": 13, "jit_compile": False}
    ours = load_translator(tmp_path / "runs" / "nllb", **options)
    expected = [tokenizer.decode(row, skip_special_tokens=True) for row in ids]
    assert len(set(expected)) > 1
    assert ours(TEXTS) == expected


def test_its_training_data_begin_with_the_codes(nllb):
    folder, _, tokenizer = nllb
    ours = load_hugging_face(folder, "eng_Latn", "deu_Latn", jit_compile=False)
    tags = {"source_tag": ours.source_tag, "target_tag": ours.target_tag}
    data = translation_dataset(
        TEXTS[:1], TEXTS[2:], ours.source_tokenizer, verbose=False, tokens_per_batch=64, **tags
    )
    (sources, inputs), labels = next(iter(data))
    tokenizer.src_lang, tokenizer.tgt_lang = "eng_Latn", "deu_Latn"
    expected = tokenizer(TEXTS[:1], text_target=TEXTS[2:])
    assert sources[0].numpy().tolist()[: len(expected["input_ids"][0])] == expected["input_ids"][0]
    wanted = expected["labels"][0]
    assert labels[0].numpy().tolist()[: len(wanted)] == wanted
    assert inputs[0].numpy().tolist()[: len(wanted)] == [2, *wanted[:-1]]


def test_m2m100_translates_from_one_language_to_another(lines, tmp_path):
    model = train(lines, vocab_size=500)
    (tmp_path / "sentencepiece.bpe.model").write_bytes(model)
    pieces = ["<s>", "<pad>", "</s>", "<unk>", *processor(model).id_to_piece(list(range(3, 500)))]
    vocabulary = {piece: index for index, piece in enumerate(pieces)}
    (tmp_path / "vocab.json").write_text(json.dumps(vocabulary), encoding="utf-8")
    tokenizer = transformers.M2M100Tokenizer.from_pretrained(tmp_path, src_lang="en", tgt_lang="de")
    theirs = random_model(
        "m2m_100",
        vocab_size=len(pieces) + 108,  # with the made-up words behind the languages
        pad_token_id=1,
        bos_token_id=0,
        eos_token_id=2,
        decoder_start_token_id=2,
        activation_function="relu",
    )
    forced = tokenizer.get_lang_id("de")
    never = [1, *range(len(vocabulary), theirs.config.vocab_size)]
    never.remove(forced)
    save(theirs, tmp_path, **SEARCH, suppress_tokens=never)
    tokenizer.save_pretrained(tmp_path)
    ours = load_hugging_face(tmp_path, "en", "de", max_length=13, jit_compile=False)
    theirs = transformers.M2M100ForConditionalGeneration.from_pretrained(tmp_path)
    expected, scores = their_translations(theirs, tokenizer, forced)
    # Since version 5 theirs writes the language too.
    expected = [text.removeprefix("__de__").strip() for text in expected]
    check_translations(ours, expected, scores)


@pytest.mark.parametrize("symbols", [[], [">>deu<<"]])
def test_marian_of_several_targets_is_told_one(lines, tmp_path, symbols):
    """Whether the sentencepiece model has a code too or vocab.json alone."""
    model = train(lines, vocab_size=400, user_defined_symbols=symbols)
    pieces = ["</s>", "<unk>", *processor(model).id_to_piece(list(range(3, 400)))]
    pieces += [code for code in (">>deu<<", ">>fra<<") if code not in symbols] + ["<pad>"]
    vocabulary = {piece: index for index, piece in enumerate(pieces)}
    pad = len(pieces) - 1
    theirs = random_model(
        vocab_size=len(pieces), pad_token_id=pad, eos_token_id=0, decoder_start_token_id=pad
    )
    files = {"source.spm": model, "target.spm": model, "vocab.json": vocabulary}
    files["tokenizer_config.json"] = {"tokenizer_class": "MarianTokenizer"}
    settings = {**SEARCH, "bad_words_ids": [[pad], [1]], "renormalize_logits": True}
    save(theirs, tmp_path, files, **settings)
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path)
    theirs = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path)
    directory = converted(tmp_path, tmp_path / "ct2", "source.spm", "target.spm")
    for code in ("deu", "fra"):
        texts = [f">>{code}<< {text}" for text in TEXTS]
        written = theirs.generate(**tokenizer(texts, padding=True, return_tensors="pt"))
        expected = tokenizer.batch_decode(written, skip_special_tokens=True)
        ours = load_hugging_face(tmp_path, target_language=code, max_length=13, jit_compile=False)
        assert ours(TEXTS) == expected
        options = {"search": ours.search, "max_length": 13, "jit_compile": False}
        with pytest.warns(UserWarning, match="sources end in '</s>' here"):
            assert load_ctranslate2(directory, **options)(texts) == expected
    ours = load_hugging_face(tmp_path, max_length=13, jit_compile=False)
    assert ours(texts) == expected  # the code may be in the text
    for side in ("source", "target"):
        options = {"text_target": texts} if side == "target" else {"text": texts}
        ids = [row[:-1] for row in tokenizer(**options)["input_ids"]]
        assert getattr(ours, f"{side}_tokenizer").tokenize(texts).to_list() == ids
