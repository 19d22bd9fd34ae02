"""What dividing texts into sentences does to BLEU: single lines, and lines joined two by two.

    python -m benchmarks.sentences runs/multi30k --source val.en --target val.de

Takes the directory of a run of `keras-transformer train`. BLEU is sacreBLEU's, lower-cased
(13a), of texts: what stands for two lines is compared with both references, joined. Without a
division the model reads each text whole.
"""

import argparse
import collections
import os
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import sacrebleu

from keras_transformer import BeamSearch
from keras_transformer.serving import Translator
from keras_transformer.serving.sentences import find_sentences
from keras_transformer.text import load_tokenizer


def main():
    """Translates and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path, help="directory of a finished or stopped run")
    parser.add_argument("--source", type=Path, required=True, help="texts, one a line")
    parser.add_argument("--target", type=Path, required=True, help="their translations")
    parser.add_argument("--beam", type=int, default=4)
    args = parser.parse_args()
    sources, targets = (
        path.read_text(encoding="utf-8").splitlines() for path in (args.source, args.target)
    )
    translator = read_translator(args.run, args.beam)

    def translate(texts, split):
        found = translator.translate(texts, num_hypotheses=1, split_sentences=split)
        return [hypotheses[0][0] for hypotheses in found]

    print(f"{len(sources):,} lines, beam {args.beam}")
    for row in table(translate, sources, targets):
        print(row, flush=True)


def read_translator(run, beam):
    """The translator of a run's best model."""
    model = keras.saving.load_model(run / "model.keras", compile=False)
    source_tokenizer = load_tokenizer(run / "source.tokenizer")
    own = run / "target.tokenizer"
    target_tokenizer = load_tokenizer(own) if own.exists() else source_tokenizer
    return Translator(model, source_tokenizer, target_tokenizer, search=BeamSearch(beam))


def table(translate, sources, targets):
    """Yields the rows of a table in Markdown; `translate(texts, split)` gives translations."""
    yield "| lines a text | texts | several sentences | whole: BLEU, length | divided |"
    yield "|---|---|---|---|---|"
    for lines in (1, 2):
        texts, references = joined(sources, lines), joined(targets, lines)
        cells = [lines, len(texts), num_divided(texts)]
        for split in (False, True):
            bleu = sacrebleu.corpus_bleu(translate(texts, split), [references], lowercase=True)
            cells.append(f"{bleu.score:.2f}, {bleu.sys_len / bleu.ref_len:.2f}")
        yield f"| {' | '.join(map(str, cells))} |"


def joined(lines, count):
    """Texts of `count` lines each, the last of what is left."""
    return [" ".join(lines[start : start + count]) for start in range(0, len(lines), count)]


def num_divided(texts):
    """How many of the texts have several sentences."""
    counts = collections.Counter(find_sentences(texts).texts.numpy().tolist())
    return sum(count > 1 for count in counts.values())


if __name__ == "__main__":
    main()
