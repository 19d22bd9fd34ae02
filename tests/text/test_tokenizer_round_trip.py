"""Texts of many languages come back from their ids as they were, up to runs of spaces."""

import re
import unicodedata

import pytest

tf = pytest.importorskip("tensorflow")
pytest.importorskip("tensorflow_text")

from keras_transformer.text import (  # noqa: E402
    CharacterTokenizer,
    SentencePieceTokenizer,
    SymbolTokenizer,
)

# Escapes stand for what a reader would not see; every text has what its language writes with.
TEXTS = {
    "Amharic": "ሰላም፣ ዛሬ ጥሩ ቀን ነው። ፫ ሰዎች መጡ፤ አመሰግናለሁ።",
    "Arabic": "مَرْحَبًا، كيف حالك؟ العـــدد ١٢٣؛ ﷺ",
    "Bengali": "আমি বাংলায় গান গাই। র\u200d্যাব ও ক্ষমা\u09f7 ৳৫০",
    "Burmese": "မြန်မာစာသည် လှသည်။ \u200bကျေးဇူးတင်ပါတယ်၊ ၁၂၃",
    "Chinese": "他说：“你好，世界！”（一千二百三十四）……《红楼梦》、全角ＡＢＣ１２３。",
    "Chinese, traditional": "「請問，車站在哪裡？」她問道——『謝謝』；１００％。",
    "English": "It’s 3½ m² of ﬁne “oﬃce” space… 50\u00a0km — x³ ≠ x₂, №\u00a05, ™ & ©.",
    "French": "«\u202fL’été, où est-ce\u202f?\u202f» dit-il\u00a0: 1\u202f234\u00a0€\u202f; Noël",
    "German": "„Straße“, ‚Grüße‘ und ›Maß‹ – z.\u202fB. 10\u00a0% … Ⅳ. Kapitel",
    "Greek": "Ο ΜΕΓΑΛΟΣ και ο μεγάλος σκύλος\u037e άλλος· ᾳ ἀρχή",
    "Hebrew": "שָׁלוֹם עֲלֵיכֶם, מַה נִּשְׁמַע? „ציטוט” 5\u05f4 צה״ל",
    "Hindi": "मैं क़लम से लिखता हूँ। क्\u200dष और क्\u200cष अलग हैं॥ फ़र्क १२३",
    "Japanese": "「ﾊﾝｶｸ」と『ハンカク』、ＡＢＣ　１２３〜㍻①㈱！？が ガ か\u3099",
    "Khmer": "ខ្ញុំ\u200bស្រឡាញ់\u200bភាសា\u200bខ្មែរ។ ៥០៛ ៖ ល។",
    "Korean": "안녕하세요? ‘한글’·“문장” ㎏ ㈜ \u1112\u1161\u11ab\u1100\u1173\u11af 12",
    "Marathi": "मी मराठी बोलतो. तऱ्हेने, कऱ्\u200dहाड, ॲप",
    "Persian": "می‌خواهم کتاب‌ها را بخوانم؛ نمی‌دانم… ۱۲۳٪ «سلام»",
    "Polish": "„Zażółć gęślą jaźń” – rzekł… ½ l, 20\u00a0°C",
    "Russian": "«Ёлка», — сказал он… 5\u00a0№\u00a01 и´ за\u0301мок",
    "Spanish": "¿Qué? ¡No! 1.ª y 2.º piso, «año»… 3\u00a0000",
    "Swahili": "Ng’ombe wa bibi ni 25 ½; “asante sana”…",
    "Tamil": "நான் தமிழ் பேசுகிறேன்; க்ஷ ஸ்ரீ கொ கொ ௧௨௩",
    "Telugu": "నేను తెలుగు మాట్లాడతాను. క్\u200cష ౧౨౩",
    "Thai": "ฉันรักภาษาไทยฯลฯ น้ำ นํ้า ๑๒๓ “ครับ”",
    "Turkish": "İstanbul’da IĞDIR ılık, iyi… 5’i %20",
    "Ukrainian": "М’ята, м'ята і мʼята: їжак, ґанок — «так»…",
    "Urdu": "میں اُردو بولتا ہوں۔ ’’ہاں‘‘ ۴۵؟ ﷲ",
    "Vietnamese": "Tiếng Việt và Tie\u0302\u0301ng Vie\u0323\u0302t: “được”… 5\u00a0000\u00a0₫",
    "emoji": "👩🏽‍🚀 👨‍👩‍👧‍👦 ❤\ufe0f ❤\ufe0e 🇩🇪 1\ufe0f⃣ 🏴󠁧󠁢󠁥󠁮󠁧󠁿",
    "soft and joined": "auto\u00ad\u2060mobil \u2011 \u200e(abc)\u200f a\u0301\u0327 Å Å ℌ ſ",
}
ALL = list(TEXTS.values())


def there_and_back(tokenizer, texts):
    return [text.decode() for text in tokenizer.detokenize(tokenizer.tokenize(texts)).numpy()]


def one_space(text):
    """What comes back: white space of ASCII is one space, and none at either end."""
    return re.sub(r"[ \t\n\v\f\r]+", " ", text).strip(" ")


@pytest.fixture(scope="module")
def sentencepiece():
    return SentencePieceTokenizer.train(ALL * 3, vocab_size=900, character_coverage=1.0)


@pytest.mark.parametrize("language", TEXTS)
def test_a_text_comes_back_as_it_was(sentencepiece, language):
    text = TEXTS[language]
    assert there_and_back(sentencepiece, [text]) == [text]


def test_runs_of_ascii_white_space_come_back_as_one_space(sentencepiece):
    texts = [f"  {text}\t\n {text}\r\n\v\f" for text in ALL] + ["", " ", "\n\t "]
    assert there_and_back(sentencepiece, texts) == [one_space(text) for text in texts]


@pytest.mark.parametrize("space", ["\u00a0", "\u202f", "\u3000", "\u2009", "\u200b"])
def test_other_spaces_are_characters(space):
    text = f"{space}a{space}{space} b{space}"
    tokenizer = SentencePieceTokenizer.train([text] * 9, vocab_size=30, shrink_to_fit=True)
    assert there_and_back(tokenizer, [text]) == [text]


def test_unigrams_and_dropout_keep_texts_too(sentencepiece):
    options = {"model_type": "unigram", "character_coverage": 1.0}
    unigram = SentencePieceTokenizer.train(ALL * 3, shrink_to_fit=True, **options)
    assert there_and_back(unigram, ALL) == ALL
    ids = sentencepiece.tokenize_with_dropout(ALL, 0.5, seed=1)
    assert [text.decode() for text in sentencepiece.detokenize(ids).numpy()] == ALL


def test_characters_and_symbols_come_back(sentencepiece):
    assert there_and_back(CharacterTokenizer.train(ALL), ALL) == ALL
    assert there_and_back(SymbolTokenizer.train(ALL), ALL) == ALL


def test_text_of_no_language_that_was_seen_comes_back_from_bytes():
    tokenizer = SentencePieceTokenizer.train(
        [TEXTS["English"]] * 9, vocab_size=400, byte_fallback=True, shrink_to_fit=True
    )
    assert there_and_back(tokenizer, ALL) == ALL


@pytest.mark.parametrize(
    ("form", "lowercase"),
    [
        pytest.param("nfc", True),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in [("nfc", False), ("nfkc", False), ("nfkc", True)]
        ),
    ],
)
def test_a_fold_gives_the_text_that_python_folds(form, lowercase):
    def fold(text):
        text = unicodedata.normalize(form.upper(), text)
        return one_space(text.lower() if lowercase else text)

    options = {"character_coverage": 1.0, "normalization": form, "lowercase": lowercase}
    tokenizer = SentencePieceTokenizer.train(ALL * 3, vocab_size=900, **options)
    assert there_and_back(tokenizer, ALL) == [fold(text) for text in ALL]
    assert there_and_back(CharacterTokenizer.train(ALL, None, form, lowercase), [ALL[4]]) == [
        unicodedata.normalize(form.upper(), ALL[4].lower() if lowercase else ALL[4])
    ]
