"""Makes translation data out of nothing: dates, times and numbers in two languages, from CLDR.

`date_pairs` writes random dates, times, date-times, decimals, percentages and amounts of money in
many styles, in a source and in a target locale. What the source says decides what the target is,
so a model can reach 100 %.
"""

import datetime
import random
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from typing import Any, NamedTuple

try:
    from babel import Locale, UnknownLocaleError, dates, numbers
except ImportError as error:
    raise ImportError(
        'Dates in many languages need Babel: pip install "keras-transformer-components[eval]"'
    ) from error

# A year of two digits can mean one year only.
FIRST_DAY, LAST_DAY = datetime.date(1970, 1, 1), datetime.date(2069, 12, 31)
CURRENCIES = ["EUR", "USD", "GBP", "JPY", "KRW", "CHF", "CAD", "INR"]
SKELETONS = ["yMMMEd", "MMMMd", "MMMEd", "yMMMM", "yMMM", "yQQQ", "yQQQQ", "Ed"]

# Spaces and marks of direction that look like a plain space, or like nothing.
PLAIN = {ord(c): " " for c in "\u00a0\u202f\u2009"} | {ord(c): "" for c in "\u200e\u200f\u061c"}


Pair = tuple[str, str]
Writer = Callable[[Any, Locale], str]  # of a value, in a locale


class Kind(NamedTuple):
    """One thing that can be written in any locale, such as a long date."""

    name: str
    family: str  # kinds of one family can write the same values
    weight: float  # how often it is drawn, against the others
    draw: Callable[[random.Random], Any]
    write: Writer
    probes: Sequence[Any]  # values that differ in one field each


def date_pairs(
    num_pairs: int, source_locale: str = "en", target_locale: str = "fr", seed: int = 0
) -> list[Pair]:
    """Makes `num_pairs` pairs of a source text and its translation, all sources different.

    Args:
        num_pairs: number of pairs.
        source_locale: a CLDR locale such as `"en"`, `"ko"` or `"pt_BR"`.
        target_locale: the locale to translate to.
        seed: another seed gives other pairs, the same seed the same pairs in the same order.

    Returns:
        A list of `(source, target)`.

    Raises:
        ValueError: when a locale is unknown, or there are not `num_pairs` different pairs.

    Example:

    >>> date_pairs(2, "en", "fr", seed=2) == date_pairs(3, "en", "fr", seed=2)[:2]
    True
    """
    pairs: dict[str, str] = {}
    idle = 0
    for source, target in stream_pairs(source_locale, target_locale, seed):
        if len(pairs) >= num_pairs or idle > 10_000:
            break
        idle = idle + 1 if source in pairs else 0
        pairs.setdefault(source, target)
    if len(pairs) < num_pairs:
        raise ValueError(
            f"`num_pairs` must be at most the number of different pairs, about {len(pairs)}. "
            f"Received: num_pairs={num_pairs}"
        )
    return list(pairs.items())


def split_pairs(
    pairs: Sequence[Pair], num_validation: int, num_test: int, seed: int = 0
) -> tuple[list[Pair], list[Pair], list[Pair]]:
    """Splits pairs at random, so that no source is in two parts; repeated sources count once.

    Returns:
        Three lists of pairs, `(training, validation, test)`.
    """
    unique = list(dict(pairs).items())
    held_out = num_validation + num_test
    if min(num_validation, num_test) < 0 or held_out >= len(unique):
        raise ValueError(
            f"`num_validation` + `num_test` must leave some of the {len(unique)} different pairs. "
            f"Received: num_validation={num_validation}, num_test={num_test}"
        )
    random.Random(f"split {seed}").shuffle(unique)
    return unique[held_out:], unique[:num_validation], unique[num_validation:held_out]


def stream_pairs(
    source_locale: str = "en", target_locale: str = "fr", seed: int = 0
) -> Iterator[Pair]:
    """Gives random pairs without end; a source may come again, always with the same target."""
    locales = _locale("source_locale", source_locale), _locale("target_locale", target_locale)
    kinds = usable_kinds(*locales)
    weights = [kind.weight for kind in kinds]
    generator = random.Random(f"pairs {seed}")
    while True:
        (kind,) = generator.choices(kinds, weights)
        value = kind.draw(generator)
        pair = write_pair(kind, value, *locales)
        if not _is_taken(pair, kind, value, kinds, locales):
            yield pair


def write_pair(kind: Kind, value: Any, source_locale: Locale, target_locale: Locale) -> Pair:
    """Writes one value in both locales, with plain spaces."""
    texts = [kind.write(value, locale) for locale in (source_locale, target_locale)]
    source, target = (" ".join(text.translate(PLAIN).split()) for text in texts)
    return source, target


def usable_kinds(source_locale: Locale, target_locale: Locale) -> list[Kind]:
    """Gives the kinds that both locales can write and whose source text decides the target.

    A kind is left out when two values that differ in one field have the same source and different
    targets. Then the source has lost what the target shows.
    """
    return [kind for kind in all_kinds() if _decides(_probe(kind, source_locale, target_locale))]


def _probe(kind: Kind, source_locale: Locale, target_locale: Locale) -> list[Pair] | None:
    """Writes the probes of a kind; gives None where a locale has no such form."""
    try:
        return [write_pair(kind, value, source_locale, target_locale) for value in kind.probes]
    except (KeyError, AttributeError):  # what Babel raises for a form that CLDR lacks
        return None


def _decides(pairs: list[Pair] | None) -> bool:
    """Tells whether equal sources always have equal targets."""
    return pairs is not None and len(set(pairs)) == len(dict(pairs))


def _is_taken(
    pair: Pair,
    kind: Kind,
    value: Any,
    kinds: Sequence[Kind],
    locales: tuple[Locale, Locale],
) -> bool:
    """Tells whether an earlier kind writes the same source for this value, and another target.

    "May 5, 2026" is a long and a medium date in English; the earlier kind then has the say.
    """
    for other in kinds[: kinds.index(kind)]:
        if other.family == kind.family:
            rival = write_pair(other, value, *locales)
            if rival[0] == pair[0] and rival[1] != pair[1]:
                return True
    return False


def all_kinds() -> list[Kind]:
    """Gives every kind, earlier ones first where two could be meant."""
    styles = ["full", "long", "medium", "short"]
    glued = [("long", "short"), ("medium", "medium"), ("short", "short")]
    moments = [
        *((f"{style} date", 10, _date(style)) for style in styles),
        *((f"{form} date", 3, _skeleton(form)) for form in SKELETONS),
        *((f"{style} time", 5, _time(style)) for style in styles[2:]),
        *((f"{date} date, {time} time", 5, _moment(date, time)) for date, time in glued),
    ]
    money = [(code, form) for code in CURRENCIES for form in ("standard", "name")]
    probes, digits = _moment_probes(), _number_probes()
    return [
        *(Kind(name, "moment", weight, _draw_moment, w, probes) for name, weight, w in moments),
        Kind("decimal", "decimal", 8, _draw_decimal, _write_decimal, digits),
        Kind("percentage", "percentage", 5, _draw_percentage, _write_percentage, digits),
        *(Kind(f"{c} {f}", "money", 1, _draw_amount(c), _money(c, f), digits) for c, f in money),
    ]


def _date(style: Any) -> Writer:
    return lambda moment, locale: dates.format_date(moment, style, locale=locale)


def _time(style: Any) -> Writer:
    return lambda moment, locale: dates.format_time(moment, style, locale=locale)


def _skeleton(form: str) -> Writer:
    return lambda moment, locale: dates.format_skeleton(form, moment, locale=locale)


def _moment(date_style: Any, time_style: str) -> Writer:
    """Gives a writer of date and time, joined as the locale does."""

    def write(moment: datetime.datetime, locale: Locale) -> str:
        glue = str(dates.get_datetime_format(date_style, locale=locale)).replace("'", "")
        date = dates.format_date(moment, date_style, locale=locale)
        time = dates.format_time(moment, time_style, locale=locale)
        return glue.replace("{0}", time).replace("{1}", date)

    return write


def _write_decimal(value: Decimal, locale: Locale) -> str:
    return numbers.format_decimal(value, locale=locale, decimal_quantization=False)


def _write_percentage(value: Decimal, locale: Locale) -> str:
    return numbers.format_percent(value / 100, locale=locale, decimal_quantization=False)


def _money(code: str, form: Any) -> Writer:
    """Gives a writer of amounts of one currency, in its smallest coin and no finer."""
    step = Decimal(1).scaleb(-numbers.get_currency_precision(code))

    def write(value: Decimal, locale: Locale) -> str:
        amount = abs(value).quantize(step)
        return numbers.format_currency(amount, code, locale=locale, format_type=form)

    return write


def _draw_moment(generator: random.Random) -> datetime.datetime:
    """Draws a second of the hundred years."""
    days = generator.randint(0, (LAST_DAY - FIRST_DAY).days)
    midnight = datetime.datetime.combine(FIRST_DAY, datetime.time())
    return midnight + datetime.timedelta(days=days, seconds=generator.randrange(86_400))


def _draw_decimal(generator: random.Random) -> Decimal:
    """Draws a number of 1 to 7 digits and 0 to 3 decimals, one in five negative."""
    whole = generator.randrange(10 ** generator.randint(1, 7))
    decimals = generator.choice([0, 1, 2, 3])
    value = Decimal(whole * 10**decimals + generator.randrange(10**decimals)).scaleb(-decimals)
    return -value if value and generator.random() < 0.2 else value


def _draw_percentage(generator: random.Random) -> Decimal:
    """Draws a number of per cent from 0 to 200, with 0 to 2 decimals."""
    decimals = generator.choice([0, 1, 2])
    return Decimal(generator.randrange(200 * 10**decimals + 1)).scaleb(-decimals)


def _draw_amount(code: str) -> Callable[[random.Random], Decimal]:
    """Gives a function that draws an amount of money of 1 to 6 digits, coins included."""
    precision = numbers.get_currency_precision(code)

    def draw(generator: random.Random) -> Decimal:
        coins = generator.randrange(1, 10 ** (generator.randint(1, 6) + precision))
        return Decimal(coins).scaleb(-precision)

    return draw


def _moment_probes() -> list[datetime.datetime]:
    """Gives moments that differ from another in the year, month, day, hour, minute or second."""
    probes: list[Any] = []
    for base in (datetime.datetime(1987, 3, 4, 5, 6, 7), datetime.datetime(2026, 11, 20, 15, 30)):
        fields: dict[str, Any] = {
            "year": range(FIRST_DAY.year, LAST_DAY.year + 1),
            "month": range(1, 13),
            "day": range(1, 29),
            "hour": range(24),
            "minute": range(60),
            "second": range(60),
        }
        for field, values in fields.items():
            changes: list[dict[str, Any]] = [{field: value} for value in values]
            probes += [base.replace(**change) for change in changes]
    return probes


def _number_probes() -> list[Decimal]:
    """Gives numbers that differ from another in a digit, in the sign or in size."""
    digits = [Decimal(digit).scaleb(place) for digit in range(10) for place in range(-3, 7)]
    return [*digits, *(Decimal("1234567.089") + digit for digit in digits)]


def _locale(name: str, identifier: str) -> Locale:
    """Reads a locale, or says in one line what is wrong with it."""
    try:
        return Locale.parse(str(identifier).replace("-", "_"))
    except (UnknownLocaleError, ValueError) as error:
        raise ValueError(
            f"`{name}` must be a CLDR locale such as 'en', 'ko' or 'pt_BR'. "
            f"Received: {name}={identifier!r}"
        ) from error
