"""A corpus on disk is opened without TensorFlow, and what does not fit together is refused."""

import json

import numpy as np
import pytest

from keras_transformer.batches import CorpusReport, PairDataset, PreparedCorpus
from keras_transformer.batches.prepared_corpus import write_corpus

ROWS = [[5, 6, 7], [8], [9, 10]]
TARGETS = [[11], [12, 13], [14, 15, 16, 17]]
ORDER = [0, 1, 2, 1]  # a pass has the second pair twice


@pytest.fixture
def path(tmp_path):
    arrays = {}
    for side, rows in (("source", ROWS), ("target", TARGETS)):
        lengths = np.array([len(row) for row in rows], "int32")
        starts = np.cumsum(lengths) - lengths
        arrays[f"{side}.ids"] = np.concatenate(rows).astype("uint16")
        arrays[f"{side}.starts"] = starts[ORDER]
        arrays[f"{side}.lengths"] = lengths[ORDER]
    report = {"num_pairs": 5, "num_kept": 3, "num_rows": 4, "left_out": {"empty": 2}}
    description = {
        "digest": "0123",
        "report": report,
        "special_ids": [0, 2, 3],
        "tokenizers": {"source": "a", "target": "b"},
    }
    write_corpus(tmp_path, description, arrays)
    return tmp_path


def test_rows_may_repeat_and_batches_are_those_of_lists(path):
    corpus = PreparedCorpus(path)
    assert corpus.report == CorpusReport(5, 3, 4, {"empty": 2})
    assert corpus.report.summary() == "corpus: 3 of 5 pairs, 4 a pass; left out 2 empty"
    options = dict(tokens_per_batch=16, shuffle=True, seed=1, max_shapes=2, verbose=False)
    lists = PairDataset([ROWS[n] for n in ORDER], [TARGETS[n] for n in ORDER], **options)
    found = PairDataset(corpus.sources, corpus.targets, **options)
    assert found.report == lists.report
    for index in range(len(lists)):
        (sources, inputs), outputs = found[index]
        (expected, *others), last = lists[index][0], lists[index][1]
        assert sources.dtype == np.int32
        np.testing.assert_array_equal(sources, expected)
        np.testing.assert_array_equal(inputs, others[0])
        np.testing.assert_array_equal(outputs, last)


def test_arrays_stay_on_disk(path):
    corpus = PreparedCorpus(path)
    for array in (corpus.sources.flat, corpus.targets.starts, corpus.targets.lengths):
        assert isinstance(array.base, np.memmap)


def test_other_arrays_special_ids_and_sides_are_refused(path, tmp_path):
    corpus = PreparedCorpus(path)
    with pytest.raises(ValueError, match="`path` must be the directory of a prepared corpus"):
        PreparedCorpus(tmp_path / "nowhere")
    with pytest.raises(ValueError, match=r"Received: \(1, 2, 3\), and \(0, 2, 3\) in the corpus"):
        PairDataset(corpus.sources, corpus.targets, pad_id=1)
    with pytest.raises(ValueError, match="of corpus 0123 and another list"):
        PairDataset(corpus.sources, [[5]] * 4)
    file = path / "corpus.json"
    found = json.loads(file.read_text(encoding="utf-8"))
    found["report"]["num_rows"] = 3
    file.write_text(json.dumps(found), encoding="utf-8")
    with pytest.raises(ValueError, match=r"must be of 3 rows. Received: source arrays of shapes"):
        PreparedCorpus(path)
