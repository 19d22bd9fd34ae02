"""A Marian model of Hugging Face's own training, loaded here, trained on, extended and served.

    pip install accelerate  # what the Trainer needs
    python -m benchmarks.fine_tuning --data multi30k --output runs/fine-tuning

`--data` holds train, val and test_2016_flickr texts, `.en` and `.de`. Hugging Face's `Trainer`
trains a small Marian model for some epochs, in a process of its own. Then, one line each:

* the loss and BLEU (greedy, sacreBLEU 13a) on the validation texts, there and here;
* the same after each epoch of `model.fit` here;
* the logits before and after 200 words became pieces of the vocabulary;
* the extended model after an epoch, exported, and asked through `keras-transformer serve`;
* BLEU of the SavedModel of the one before, and on the test texts.

What is written stays in `--output`; the training there is not repeated.
"""

import argparse
import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from pathlib import Path

os.environ.setdefault("KERAS_BACKEND", "tensorflow")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

NEW_PIECES = 200
SIZES = {"layers": 3, "attention_heads": 4, "ffn_dim": 512}


def main():
    """Trains there, then here."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--epochs-there", type=int, default=3)
    parser.add_argument("--epochs-here", type=int, default=4)
    parser.add_argument("--pairs", type=int, help="how many pairs to train on; default: all")
    parser.add_argument("--vocab-size", type=int, default=6000, help="pieces of both sides")
    parser.add_argument("--there", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    args.output.mkdir(parents=True, exist_ok=True)
    if args.there:
        train_there(args)
        return
    if not (args.output / "there.json").exists():
        command = [sys.executable, "-m", "benchmarks.fine_tuning", *sys.argv[1:], "--there"]
        subprocess.run(command, check=True)
    there = json.loads((args.output / "there.json").read_text(encoding="utf-8"))
    print(f"there: validation loss {there['loss']:.4f}, BLEU {there['bleu']:.2f}", flush=True)
    train_here(args, there["translations"])


def read_texts(args, split, limit=None):
    """The sentences of both sides."""
    return [
        (args.data / f"{split}.{language}").read_text(encoding="utf-8").splitlines()[:limit]
        for language in ("en", "de")
    ]


def score_bleu(translations, references):
    """sacreBLEU's score."""
    import sacrebleu

    return sacrebleu.corpus_bleu(translations, [references]).score


# --- Hugging Face


def train_there(args):
    """Trains a Marian model by Hugging Face's code alone, saves it and measures it."""
    import torch
    import transformers

    directory = args.output / "hugging-face"
    torch.manual_seed(1)
    tokenizer = write_tokenizer(args, directory)
    pad = tokenizer.pad_token_id
    sides = {
        f"{side}_{name}": size for side in ("encoder", "decoder") for name, size in SIZES.items()
    }
    config = transformers.MarianConfig(
        vocab_size=len(tokenizer), d_model=256, **sides, activation_function="swish", dropout=0.1,
        attention_dropout=0.0, activation_dropout=0.0, pad_token_id=pad, eos_token_id=0,
        decoder_start_token_id=pad, forced_eos_token_id=None, scale_embedding=True,
        max_position_embeddings=256, bad_words_ids=None,
    )  # fmt: skip
    model = transformers.MarianMTModel(config)

    def rows(split, limit=None):
        source, target = read_texts(args, split, limit)
        return [
            dict(zip(("input_ids", "labels"), pair, strict=True))
            for pair in zip(
                tokenizer(source)["input_ids"],
                tokenizer(text_target=target)["input_ids"],
                strict=True,
            )
        ]

    settings = transformers.Seq2SeqTrainingArguments(
        str(args.output / "trainer"), num_train_epochs=args.epochs_there, learning_rate=1e-3,
        per_device_train_batch_size=64, warmup_steps=200, lr_scheduler_type="constant_with_warmup",
        adam_beta2=0.98, train_sampling_strategy="group_by_length", logging_steps=100,
        save_strategy="no", report_to="none", use_cpu=True, seed=1,
    )  # fmt: skip
    collator = transformers.DataCollatorForSeq2Seq(tokenizer, model)
    if not (directory / "model.safetensors").exists():
        trainer = transformers.Seq2SeqTrainer(
            model, settings, train_dataset=rows("train", args.pairs), data_collator=collator
        )
        trainer.train()
        model.eval().save_pretrained(directory)
    generation = {
        "num_beams": 1,
        "max_length": 64,
        "forced_eos_token_id": None,
        "pad_token_id": pad,
    }
    generation |= {"eos_token_id": 0, "decoder_start_token_id": pad, "bad_words_ids": [[pad]]}
    path = directory / "generation_config.json"
    path.write_text(json.dumps(generation), encoding="utf-8")
    model = transformers.MarianMTModel.from_pretrained(directory).eval()
    source, target = read_texts(args, "val")
    translations, total, count = [], 0.0, 0
    with torch.no_grad():
        for first in range(0, len(source), 64):
            batch = tokenizer(source[first : first + 64], return_tensors="pt", padding=True)
            ids = model.generate(**batch)
            translations += tokenizer.batch_decode(ids, skip_special_tokens=True)
        for row in rows("val"):
            labels = torch.tensor([row["labels"]])
            loss = model(input_ids=torch.tensor([row["input_ids"]]), labels=labels).loss
            total, count = total + float(loss) * labels.numel(), count + labels.numel()
    figures = {"loss": total / count, "bleu": score_bleu(translations, target)}
    figures |= {"translations": translations}
    (args.output / "there.json").write_text(json.dumps(figures), encoding="utf-8")


def write_tokenizer(args, directory):
    """Learns one sentencepiece model of both sides and writes Marian's files."""
    import sentencepiece
    import transformers

    directory.mkdir(parents=True, exist_ok=True)
    lines = args.output / "train.txt"
    lines.write_text("\n".join(sum(read_texts(args, "train"), [])), encoding="utf-8")
    sentencepiece.SentencePieceTrainer.train(
        input=str(lines), model_prefix=str(args.output / "joint"), vocab_size=args.vocab_size,
        character_coverage=1.0, minloglevel=2,
    )  # fmt: skip
    model = args.output / "joint.model"
    processor = sentencepiece.SentencePieceProcessor(model_file=str(model))
    pieces = [processor.id_to_piece(index) for index in range(3, processor.get_piece_size())]
    vocabulary = {piece: index for index, piece in enumerate(["</s>", "<unk>", *pieces, "<pad>"])}
    for side in ("source", "target"):
        (directory / f"{side}.spm").write_bytes(model.read_bytes())
    (directory / "vocab.json").write_text(json.dumps(vocabulary), encoding="utf-8")
    settings = {"source_lang": "en", "target_lang": "de", "model_max_length": 512}
    (directory / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")
    return transformers.MarianTokenizer.from_pretrained(directory)


# --- This package


def train_here(args, theirs):
    """Loads the model, trains it on, extends its vocabulary and exports it."""
    import keras
    import numpy as np

    from keras_transformer import FusedAdam, GreedySearch, MaskedCrossentropy, Perplexity
    from keras_transformer.interop import load_hugging_face, resize_vocabulary
    from keras_transformer.serving import load
    from keras_transformer.text import translation_dataset

    keras.utils.set_random_seed(1)
    options = {"search": GreedySearch(), "max_length": 63}  # there the start counts, too
    translator = load_hugging_face(args.output / "hugging-face", **options)
    model = translator.model
    tokenizers = translator.source_tokenizer, translator.target_tokenizer

    def dataset(split, limit=None, **settings):
        sides = read_texts(args, split, limit)
        return translation_dataset(*sides, *tokenizers, tokens_per_batch=2048, **settings)

    validation = dataset("val", shuffle=False, verbose=False)
    source, target = read_texts(args, "val")
    model.compile(
        FusedAdam(5e-4, beta_2=0.98, epsilon=1e-9),
        MaskedCrossentropy(pad_id=model.pad_id),
        metrics=[Perplexity(pad_id=model.pad_id)],  # over tokens, where the loss is over batches
    )

    def report(name):
        perplexity = model.evaluate(validation, verbose=0, return_dict=True)["perplexity"]
        found = translator(source)
        loss, bleu = np.log(perplexity), score_bleu(found, target)
        print(f"{name}: validation loss {loss:.4f}, BLEU {bleu:.2f}", flush=True)
        return found

    found = report("here, loaded")
    same = sum(one == other for one, other in zip(found, theirs, strict=True))
    print(f"{same} of {len(found)} translations are those of there")
    for text, one, other in zip(source, found, theirs, strict=True):
        if one != other:
            print(f"  {text!r}: here {one!r}, there {other!r}")
    quiet = {"verbose": 0, "shuffle": False}
    data = dataset("train", args.pairs, shuffle=True, seed=1, verbose=False)
    for epoch in range(args.epochs_here):
        begun = time.perf_counter()
        history = model.fit(data, epochs=epoch + 1, initial_epoch=epoch, **quiet).history
        loss = np.log(history["perplexity"][0])
        report(f"epoch {epoch + 1}, {time.perf_counter() - begun:.0f} s, training loss {loss:.4f}")

    extended = resize_vocabulary(translator, *extended_tokenizers(args, tokenizers))
    words = extended.source_tokenizer.vocabulary[len(tokenizers[0].vocabulary) :]
    plain = [number for number, text in enumerate(source) if not any(w in text for w in words)]
    plain = [number for number in plain if not any(word in target[number] for word in words)]
    differences = []
    for number in plain:
        before, after = (
            compute_logits(one, source[number], target[number]) for one in (translator, extended)
        )
        differences.append(np.abs(after[..., : before.shape[-1]] - before).max())
    print(
        f"{len(words)} pieces more, as {' '.join(words[:3])}: in {len(plain)} sentences without "
        f"them the logits of the old ones differ by at most {max(differences):.1e}"
    )
    data = translation_dataset(
        *read_texts(args, "train", args.pairs),
        extended.source_tokenizer, extended.target_tokenizer,
        tokens_per_batch=2048, seed=1, verbose=False,
    )  # fmt: skip
    rate = float(model.optimizer.learning_rate)
    extended.model.compile(FusedAdam(rate, beta_2=0.98, epsilon=1e-9), model.loss)
    extended.model.fit(data, epochs=1, verbose=0, shuffle=False)
    found = extended(source)
    places = [number for number, text in enumerate(source) if number not in set(plain)]
    print(f"extended, after an epoch: BLEU {score_bleu(found, target):.2f}", flush=True)
    for name in ("extended", "export"):  # of an earlier run
        shutil.rmtree(args.output / name, ignore_errors=True)
    extended.export(args.output / "extended", verbose=False)
    answers = served(args.output / "extended", [source[number] for number in places])
    same = answers == [found[number] for number in places]
    print(f"{len(places)} texts with new pieces, asked through `serve`: as in Python: {same}")

    exported = args.output / "export"
    translator.export(exported, verbose=False)
    signature = load(exported).signatures["serving_default"]
    for split in ("val", "test_2016_flickr"):
        source, target = read_texts(args, split)
        found = []
        for first in range(0, len(source), 64):
            answer = signature(text=keras.ops.convert_to_tensor(source[first : first + 64]))
            found += [text.decode("utf-8") for text in answer["translation"].numpy()]
        same = found == translator(source)
        print(f"SavedModel, {split}: BLEU {score_bleu(found, target):.2f}; as in Python: {same}")


def served(directory, texts):
    """The translations of `texts` by a server of its own process."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    command = [sys.executable, "-m", "keras_transformer", "serve", directory, "--port", port]
    server = subprocess.Popen([*command, "--no-warm-up"], stdout=subprocess.DEVNULL)
    address = f"http://127.0.0.1:{port}/v1/models/translator"
    try:
        while True:
            try:
                urllib.request.urlopen(address, timeout=5).close()
                break
            except OSError:
                if server.poll() is not None:
                    raise
                time.sleep(0.5)
        answers = []
        for first in range(0, len(texts), 32):
            body = json.dumps({"inputs": {"text": texts[first : first + 32]}}).encode()
            request = urllib.request.Request(f"{address}:predict", body)
            with urllib.request.urlopen(request, timeout=300) as answer:
                answers += json.load(answer)["outputs"]["translation"]
        return answers
    finally:
        server.terminate()
        server.wait()


def compute_logits(translator, source, target):
    """The logits of one pair."""
    import numpy as np

    model = translator.model
    ids = translator.source_tokenizer.tokenize([source])[0].numpy()
    inputs = translator.target_tokenizer.tokenize([target])[0].numpy()
    pair = np.array([[*ids, model.eos_id]]), np.array([[model.bos_id, *inputs]])
    return np.asarray(model(pair))


def extended_tokenizers(args, tokenizers):
    """Tokenizers with the most frequent words that are several pieces as pieces of their own."""
    words = Counter(word for text in sum(read_texts(args, "train"), []) for word in text.split())
    frequent = [word for word, _ in words.most_common() if len(word) > 7 and word.isalpha()]
    divided = tokenizers[0].tokenize(frequent).to_list()
    known = set(tokenizers[0].vocabulary)
    pairs = zip(frequent, divided, strict=True)
    new = [word for word, ids in pairs if len(ids) > 1 and word not in known][:NEW_PIECES]
    return [tokenizer.with_pieces(new) for tokenizer in tokenizers]


if __name__ == "__main__":
    main()
