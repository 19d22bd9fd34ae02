"""find_sentences: ends of sentences in many languages, and nothing lost."""

import time

import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from keras_transformer.serving.sentences import find_sentences
from keras_transformer.text.strings import valid_text

# Sentences of each text between bars.
DIVIDED = """
A man runs here.|A cat sleeps now.
a man runs here .|a cat sleeps now .
a man runs here.|a cat sleeps now.
A man runs here .|a cat sleeps now .
Stop!|Who goes there?|Nobody.
What?!|Really?!|Yes.
He asked "Why?"|She left.
He left (at last.)|She stayed.
"Stop."|He said so.
“Stop.”|He said so.
„Halt!“|Er ging.
« Bonjour ! »|Il part.
»Hallo!«|Er ging.
he said " stop .|" she left .
( see above . )|then go .
The end is near...|Nobody knows.
It costs 3.14 euros.|It is 1.000 years old.
It was 1990.|Then he left.
He is 12.|She is 10.
We met at 5 p.m.|He left.
Bring apples, etc.|Then go.
I live in the U.S.|It is large.
See www.example.com.|It is good.
Version 2.0.1 is out.|Try it.
Great!|😀 Try it. 😀
¿Qué?|¡No!|Sí.
Er kam am 12. Oktober.|Danach ging er.
Он пришёл.|Она ушла.
他来了。|她走了。
你好！|你是谁？|我是他。
「はい。」|彼は言った。
「はい。」と彼は言った。|そして帰った。
他说：“好。”，然后走了。|她也走了。
هل أنت هنا؟|نعم.
وہ آیا۔|وہ گیا۔
वह आया।|वह गया।|तुम कौन हो?
သူလာသည်။|သူသွားသည်။
እሱ መጣ።|እሷ ሄደች።
그는 왔다.|네.|그녀는 갔다.
first line|second line
"""
WHOLE = """
Dr. Smith met Mr. and Mrs. Jones.
Prof. Dr. Müller wohnt z. B. in Berlin.
Das ist z.B. Berlin, d. h. die Hauptstadt.
We saw cats, e.g. Siamese, i.e. Thai ones, etc. in the U.S. Army.
J. R. R. Tolkien and George W. Bush met J.K. Rowling.
M. Dupont et Mme. Curie vivent à Paris, p. ex. ici.
El Sr. García y la Sra. López.
Am 12. Oktober und im 19. Jahrhundert, am 3.10. Feiertag.
See No. 5, Fig. 3, pp. 12 and Nr. 7.
On Jan. 5 he left.
Jeu. 2 déc. 2060
Well... he did not know. . . or did he
Well … maybe not
"Why?" he asked.
"Stop!" – he said.
Wait . . . what ?
He scored 3.14 and 1.000 and .5 points.
What?!?!
so . . .
a man looks at dr. smith, etc. and more
ד. כהן
د. أحمد هنا
डॉ. सिंह यहाँ हैं
А. С. Пушкин и т. д.
a.b c.d
.
... ?!
"""


def sentences(texts):
    """The sentences of each text, which must stand where they are said to stand."""
    texts = [text if isinstance(text, bytes) else text.encode() for text in texts]
    found = find_sentences(tf.constant(texts, tf.string, [len(texts)]))
    rows = [[] for _ in texts]
    for text, *span, string in zip(*(part.numpy() for part in found), strict=True):
        assert texts[text][slice(*span)] == string
        rows[text].append(string.decode())
    return rows


@pytest.mark.parametrize("line", DIVIDED.strip().split("\n"))
def test_a_text_is_divided_where_its_sentences_end(line):
    joiner = "\n" if line.startswith("first") else " "
    expected = line.split("|")
    text = joiner.join(expected)
    assert sentences([text]) == [expected]
    assert sentences([f" {text}\t"]) == [expected]


@pytest.mark.parametrize("text", WHOLE.strip().split("\n"))
def test_no_sentence_ends_within(text):
    assert sentences([text]) == [[text]]


def test_marks_of_east_asia_need_no_space():
    assert sentences(["他来了。她走了！！好。"]) == [["他来了。", "她走了！！", "好。"]]


@given(st.lists(st.text("aB.!?… \n\"'”。12।)É", max_size=30), max_size=4))
def test_all_but_white_space_is_in_a_sentence_and_no_text_changes_another(texts):
    together = sentences(texts)
    for text, found in zip(texts, together, strict=True):
        assert "".join("".join(found).split()) == "".join(text.split())
        assert sentences([text]) == [found]
        assert all(one == one.strip() and one for one in found)


@given(st.lists(st.text(max_size=20), max_size=3))
def test_any_text_is_taken(texts):
    for text, found in zip(texts, sentences(map(valid_text, texts)), strict=True):
        assert found or not text.strip()


def test_time_grows_with_the_length_of_a_text_alone():
    for unit in (". ", ".", "a. ", "。a", '"', "Dr. ", "。", "A. "):
        started = time.perf_counter()
        (found,) = sentences([unit * 2**16])
        assert time.perf_counter() - started < 30
        assert len(found) == (2**16 if unit == "。a" else 1)
