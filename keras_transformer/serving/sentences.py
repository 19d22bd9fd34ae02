"""Where the sentences of texts begin and end: a rule of marks, words and letter case."""

from typing import NamedTuple

import tensorflow as tf

# Classes of characters, in RE2's syntax.
SPACES = r"\s\v\p{Z}\x{85}"
WEAK = ".!?…‼⁇⁈⁉"  # end a sentence before white space
# End one anywhere: of East Asia, Arabic, Indic, Myanmar, Ethiopic, Khmer and Armenian scripts.
STRONG = "。！？｡؟۔।॥။።፧៕។։"
OPENS = r"\"'(\[{«»“”„‚‘’‹›「『（《〈【¿¡*_–—\-"
CLOSES = r"\"'»«”“’‘)\]}›‹」』）》〉】"
FIGURE = r"\p{Nd}{1,2}\."
LINE_BREAK = r".*[\n\r\x{85}\x{2028}\x{2029}]"
SEPARATOR = b"\xff"  # a byte that valid UTF-8 does not have

# Abbreviations whose period ends a sentence only before a word of STARTERS.
ABBREVIATIONS = (
    "mr|mrs|ms|dr|prof|st|vs|etc|approx|inc|ltd|co|corp|jr|sr|dept|messrs|al|viz"
    "|bzw|ca|vgl|usw|hr|dipl|ing|geb|gest|inkl|exkl|zzgl|ggf|evtl|sog|mio|mrd|str|chr|insb|allg|tel"
    "|mme|mgr|éd|av|env|chap|sra|srta|dña|ud|uds|aprox|núm|pág|págs|sig|sigg|dott|avv|exmo"
    "|dhr|mevr|mw|drs|bijv|bv|enz|blz|dvs|osv|np|tzn|tj|itd|itp|godz|św|inż|např|tzv|atd"
    "|др|ул|см|руб|проф|акад|стр|гг|डॉ|प्रो"
)
# The same with a capital. With a small letter they are words of one of these languages.
TITLES = "Gen|Col|Rep|Sen|Gov|Hon|Rev|Capt|Sgt|Lt|Fr|Frl|Me|Art|Mt|Ft|Abs|Kap|Bd|Ph"
# Abbreviations whose period does not end a sentence before a number.
NUMBERED = (
    "no|nos|nr|núm|fig|figs|art|abs|kap|vol|bd|p|pp|pg|s|sec|ch|eq|kl|č|str|стр"
    "|jan|feb|mar|apr|jun|jul|aug|sep|sept|oct|okt|nov|dec|dez"
    "|janv|févr|avr|juil|déc|ene|abr|ago|dic|lun|mer|jeu|ven|sam|dim|mon|tue|wed|thu|fri|sat|sun"
)
# Words that begin a sentence more often than they follow an abbreviation or an ordinal number.
STARTERS = (
    "The|This|That|These|Those|He|She|It|They|We|You|But|And|Then|There|When|If|However"
    "|Der|Die|Ein|Eine|Er|Sie|Es|Wir|Ich|Und|Aber|Dann|Danach|Da|So|Wenn|Als|Doch"
    "|Il|Elle|Ils|Elles|Nous|Vous|On|Ce|Cette|Mais|Et|Puis"
    "|Él|Ella|Ellos|Ellas|Pero|Y|Entonces|Este|Esta|Ma|Poi|Questo|Questa|Ele|Ela|Eles|Mas"
    "|Het|Een|Hij|Zij|Maar|Han|Hun|Hon|Det|Den|Men|Ona|Oni|Ale"
    "|Он|Она|Они|Мы|Но|И|Это|Затем"
)


class Sentences(NamedTuple):
    """The sentences of a batch of texts, in order.

    Attributes:
        texts: int32 (sentences,), the text that each belongs to.
        starts: int32 (sentences,), its first byte there.
        ends: int32 (sentences,), the byte behind its last. White space around it is left out.
        strings: string (sentences,), itself.
    """

    texts: tf.Tensor
    starts: tf.Tensor
    ends: tf.Tensor
    strings: tf.Tensor


@tf.function(input_signature=[tf.TensorSpec([None], tf.string)], autograph=False)
def find_sentences(texts: tf.Tensor) -> Sentences:
    """Returns the `Sentences` of valid UTF-8 strings (texts,); a text of white space has none.

    A sentence ends behind a line break, behind a mark of STRONG, and behind a mark of WEAK before
    white space. Closing quotes and brackets belong to it. In a text with capitals no sentence ends
    before a small letter. The period of an abbreviation above may end none. A period that stands
    alone always ends one, as in tokenized texts. A part without letters and digits belongs to the
    sentence before it.

    Example:

    >>> found = find_sentences(["Dr. No is here! Who? J. R. 3.14 m.", "a cat . a dog ."])
    >>> [sentence.decode() for sentence in found.strings.numpy()]
    ['Dr. No is here!', 'Who?', 'J. R. 3.14 m.', 'a cat .', 'a dog .']
    """
    words = split_words(texts)
    rows, words = tf.cast(words.value_rowids(), tf.int32), words.flat_values
    # The words of all texts lie one behind the other.
    # -> (words,), their bytes in their own text
    base = tf.cumsum(tf.strings.length(texts), exclusive=True)
    starts = tf.cumsum(tf.strings.length(words), exclusive=True) - tf.gather(base, rows)
    ends = starts + tf.strings.length(without_trailing_space(words))
    is_word = ends > starts  # all but white space at the beginning of a text
    rows, words, starts, ends = (
        tf.boolean_mask(part, is_word) for part in (rows, words, starts, ends)
    )
    is_last = ends_sentence(Words(words, rows), texts)
    is_first = tf.concat([[True], is_last], axis=0)[:-1]
    number = tf.cumsum(tf.cast(is_first, tf.int32))
    joined = tf.strings.unsorted_segment_join(
        words, number - 1, tf.math.count_nonzero(is_first, dtype=tf.int32)
    )
    return Sentences(
        tf.boolean_mask(rows, is_first),
        tf.boolean_mask(starts, is_first),
        tf.boolean_mask(ends, is_last),
        without_trailing_space(joined),
    )


class Words:
    """The words of all texts in one row, which answer questions about their neighbours.

    Args:
        words: string (words,), each with the white space behind it.
        rows: int32 (words,), the text of each.
    """

    def __init__(self, words: tf.Tensor, rows: tf.Tensor) -> None:
        self.words = words
        self.rows = rows
        same = rows[1:] == rows[:-1]
        self.is_inner = tf.concat([same, [False]], axis=0)[: tf.size(rows)]  # not a text's last

    def match(self, pattern: str) -> tf.Tensor:
        """Returns whether each word without its white space matches `pattern`, (words,)."""
        return tf.strings.regex_full_match(self.words, rf"(?s)(?:{pattern})[{SPACES}]*")

    def next(self, is_so: tf.Tensor) -> tf.Tensor:
        """Returns `is_so` (words,) of the word behind each; False behind the last of a text."""
        return tf.concat([is_so[1:], [False]], axis=0)[: tf.size(is_so)] & self.is_inner

    def before(self, is_so: tf.Tensor) -> tf.Tensor:
        """Returns `is_so` (words,) of the word before each; False before the first of a text."""
        return tf.concat([[False], is_so & self.is_inner], axis=0)[:-1]

    def are_around(self, is_so: tf.Tensor, texts: tf.Tensor) -> tf.Tensor:
        """Returns whether `is_so` (words,) of a word up to each in its text, and of one behind."""
        counts = tf.cast(is_so, tf.int32)
        in_text = tf.math.unsorted_segment_sum(counts, self.rows, tf.size(texts))
        up_to = tf.cumsum(counts) - tf.gather(tf.cumsum(in_text, exclusive=True), self.rows)
        return (up_to > 0) & (up_to < tf.gather(in_text, self.rows))


def ends_sentence(words: Words, texts: tf.Tensor) -> tf.Tensor:
    """Returns whether each of `words` is the last one of a sentence, (words,)."""
    cased = tf.gather(tf.strings.regex_full_match(texts, r"(?s).*\p{Lu}.*"), words.rows)
    weak = words.match(rf".*[{WEAK}][{CLOSES}]*")
    strong = words.match(rf".*[{STRONG}][{STRONG}{WEAK}]*[{CLOSES}]*")
    # Brackets and quotes that stand alone, as in tokenized texts, belong to the word before them.
    closes = words.before(weak) & words.match(r"[»”’)\]}›]+|''")

    def follows(is_so: tf.Tensor) -> tf.Tensor:
        next_one = words.next(is_so)
        return tf.where(words.next(closes), words.next(next_one), next_one)

    opens = words.match(rf"[{OPENS}]+")
    small = words.match(rf"[{OPENS}]*\p{{Ll}}.*")
    small |= opens & words.next(small)
    period = words.match(r"\.")
    alone = period & words.before(tf.ones_like(period)) & ~words.before(period)
    dots = words.match(rf".*(?:\.\.|…)[{CLOSES}]*") | (period & words.before(period))
    letters = r"(?:[\p{Lu}\p{Ll}\p{Arabic}\p{Hebrew}]\p{M}*\.-?)+"  # J. R. R., z. B., e.g., J.-P.
    figures = rf"{FIGURE}(?:[-–/]?{FIGURE})*"  # an ordinal number or a date, in many languages
    short = words.match(rf"(?i)[{OPENS}]*(?:(?:{ABBREVIATIONS})\.|{letters}|{figures})")
    short |= words.match(rf"[{OPENS}]*(?:{TITLES})\.")
    numbered = words.match(rf"(?i)[{OPENS}]*(?:{NUMBERED})\.")
    starts = words.match(rf"[{OPENS}]*(?:{STARTERS})(?:[^\p{{L}}\p{{M}}].*)?")
    inner = cased & follows(small) & ~alone
    inner |= short & ~(cased & follows(starts))
    inner |= numbered & follows(words.match(rf"[{OPENS}#§]*\p{{N}}.*"))
    inner |= dots & ~cased
    # In Japanese a particle follows a quotation within a sentence.
    inner |= words.match(r".*[」』”]") & follows(words.match("(?:と|って|など).*"))
    inner |= follows(words.match(r"[.!?…,;:)\]}%،、，؛].*"))
    ends = (weak | strong) & ~inner
    ends = (ends & ~words.next(closes)) | (closes & words.before(ends))
    ends |= words.match(LINE_BREAK)
    return (ends & words.are_around(words.match(r".*[\p{L}\p{N}].*"), texts)) | ~words.is_inner


def split_words(texts: tf.Tensor) -> tf.RaggedTensor:
    """Returns ragged words (texts, words), each with the white space behind it.

    A word ends behind white space, and behind a mark of STRONG with its closing quotes.
    """
    behind = rf"[{SPACES}]+|[{STRONG}][{STRONG}{WEAK}]*[{CLOSES}]*[{SPACES}]*"
    marked = tf.strings.regex_replace(texts, behind, rb"\0" + SEPARATOR)
    words = tf.strings.split(marked, SEPARATOR)
    return tf.ragged.boolean_mask(words, words != "")


def without_trailing_space(strings: tf.Tensor) -> tf.Tensor:
    """Returns the strings without white space at their ends."""
    return tf.strings.regex_replace(strings, rf"[{SPACES}]+$", "")
