"""The benchmark of dividing texts: what it joins, counts and compares."""

from benchmarks.sentences import joined, num_divided, table


def test_lines_are_joined_in_order_and_none_is_lost():
    assert joined(["a", "b", "c"], 2) == ["a b", "c"]
    assert joined(["a", "b"], 1) == ["a", "b"]


def test_texts_of_several_sentences_are_counted():
    assert num_divided(["A dog. It runs.", "Dr. No.", "", "a . b . c ."]) == 2


def test_a_translator_of_first_sentences_is_right_where_texts_are_divided():
    sources = [f"a dog number {word} runs here ." for word in ("one", "two", "six", "ten")]
    targets = [source.upper() for source in sources]

    def translate(texts, split):
        return [(text if split else text.split(" .")[0] + " .").upper() for text in texts]

    *_, single, double = table(translate, sources, targets)
    assert single == "| 1 | 4 | 0 | 100.00, 1.00 | 100.00, 1.00 |"
    assert double.startswith("| 2 | 2 | 2 | ")
    assert double.endswith(", 0.50 | 100.00, 1.00 |")
