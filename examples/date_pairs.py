"""Makes translation data out of nothing: dates, times and numbers in two languages, from CLDR.

`make_pairs` writes random dates, times, date-times, decimals, percentages and amounts of money in
many styles, in a source and in a target locale. What the source says decides what the target is,
so a model can reach 100 %. To look at some:

    python examples/date_pairs.py --source-locale en --target-locale ko --count 10
"""

import argparse
import datetime
import random
import sys
from collections.abc import Callable
from decimal import Decimal
from typing import NamedTuple

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


class Kind(NamedTuple):
    """One thing that can be written in any locale, such as a long date."""

    name: str
    family: str  # kinds of one family can write the same values
    weight: float  # how often it is drawn, against the others
    draw: Callable  # (random.Random) -> value
    write: Callable  # (value, Locale) -> text
    probes: list  # values that differ in one field each


def make_pairs(num_pairs, source_locale="en", target_locale="fr", seed=0):
    """Makes `num_pairs` pairs of a source text and its translation, all sources different.

    Args:
        num_pairs: number of pairs.
        source_locale: a CLDR locale such as `"en"`, `"ko"` or `"pt_BR"`.
        target_locale: the locale to translate to.
        seed: another seed gives other pairs, the same seed the same pairs in the same order.

    Returns: a list of `(source, target)`.

    Raises:
        ValueError: when a locale is unknown, or there are not `num_pairs` different pairs.
    """
    pairs, idle = {}, 0
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


def split_pairs(pairs, num_validation, num_test, seed=0):
    """Splits pairs at random, so that no source is in two parts; repeated sources count once.

    Returns: three lists of pairs, `(training, validation, test)`.
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


def stream_pairs(source_locale="en", target_locale="fr", seed=0):
    """Gives random pairs without end; a source may come again, always with the same target."""
    source_locale = _locale("source_locale", source_locale)
    target_locale = _locale("target_locale", target_locale)
    kinds = usable_kinds(source_locale, target_locale)
    weights = [kind.weight for kind in kinds]
    generator = random.Random(f"pairs {seed}")
    while True:
        (kind,) = generator.choices(kinds, weights)
        value = kind.draw(generator)
        pair = write_pair(kind, value, source_locale, target_locale)
        if not _is_taken(pair, kind, value, kinds, source_locale, target_locale):
            yield pair


def write_pair(kind, value, source_locale, target_locale):
    """Writes one value in both locales, with plain spaces."""
    texts = [kind.write(value, locale) for locale in (source_locale, target_locale)]
    return tuple(" ".join(text.translate(PLAIN).split()) for text in texts)


def usable_kinds(source_locale, target_locale):
    """Gives the kinds that both locales can write and whose source text decides the target.

    A kind is left out when two values that differ in one field have the same source and different
    targets: the source has lost what the target shows.
    """
    return [kind for kind in all_kinds() if _decides(_probe(kind, source_locale, target_locale))]


def _probe(kind, source_locale, target_locale):
    """Writes the probes of a kind; gives None where a locale has no such form."""
    try:
        return [write_pair(kind, value, source_locale, target_locale) for value in kind.probes]
    except (KeyError, AttributeError):  # what Babel raises for a form that CLDR lacks
        return None


def _decides(pairs):
    """Tells whether equal sources always have equal targets."""
    return bool(pairs) and len(set(pairs)) == len(dict(pairs))


def _is_taken(pair, kind, value, kinds, source_locale, target_locale):
    """Tells whether an earlier kind writes the same source for this value, and another target.

    "May 5, 2026" is a long and a medium date in English; the earlier kind then has the say.
    """
    for other in kinds[: kinds.index(kind)]:
        if other.family == kind.family:
            rival = write_pair(other, value, source_locale, target_locale)
            if rival[0] == pair[0] and rival[1] != pair[1]:
                return True
    return False


def all_kinds():
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


def _date(style):
    return lambda moment, locale: dates.format_date(moment, style, locale=locale)


def _time(style):
    return lambda moment, locale: dates.format_time(moment, style, locale=locale)


def _skeleton(form):
    return lambda moment, locale: dates.format_skeleton(form, moment, locale=locale)


def _moment(date_style, time_style):
    """Gives a writer of date and time, joined as the locale does."""

    def write(moment, locale):
        glue = str(dates.get_datetime_format(date_style, locale=locale)).replace("'", "")
        date = dates.format_date(moment, date_style, locale=locale)
        time = dates.format_time(moment, time_style, locale=locale)
        return glue.replace("{0}", time).replace("{1}", date)

    return write


def _write_decimal(value, locale):
    return numbers.format_decimal(value, locale=locale, decimal_quantization=False)


def _write_percentage(value, locale):
    return numbers.format_percent(value / 100, locale=locale, decimal_quantization=False)


def _money(code, form):
    """Gives a writer of amounts of one currency, in its smallest coin and no finer."""
    step = Decimal(1).scaleb(-numbers.get_currency_precision(code))

    def write(value, locale):
        amount = abs(value).quantize(step)
        return numbers.format_currency(amount, code, locale=locale, format_type=form)

    return write


def _draw_moment(generator):
    """Draws a second of the hundred years."""
    days = generator.randint(0, (LAST_DAY - FIRST_DAY).days)
    midnight = datetime.datetime.combine(FIRST_DAY, datetime.time())
    return midnight + datetime.timedelta(days=days, seconds=generator.randrange(86_400))


def _draw_decimal(generator):
    """Draws a number of 1 to 7 digits and 0 to 3 decimals, one in five negative."""
    value = generator.randrange(10 ** generator.randint(1, 7))
    decimals = generator.choice([0, 1, 2, 3])
    value = Decimal(value * 10**decimals + generator.randrange(10**decimals)).scaleb(-decimals)
    return -value if value and generator.random() < 0.2 else value


def _draw_percentage(generator):
    """Draws a number of per cent from 0 to 200, with 0 to 2 decimals."""
    decimals = generator.choice([0, 1, 2])
    return Decimal(generator.randrange(200 * 10**decimals + 1)).scaleb(-decimals)


def _draw_amount(code):
    """Gives a function that draws an amount of money of 1 to 6 digits, coins included."""
    precision = numbers.get_currency_precision(code)

    def draw(generator):
        coins = generator.randrange(1, 10 ** (generator.randint(1, 6) + precision))
        return Decimal(coins).scaleb(-precision)

    return draw


def _moment_probes():
    """Gives moments that differ from another in the year, month, day, hour, minute or second."""
    probes = []
    for base in (datetime.datetime(1987, 3, 4, 5, 6, 7), datetime.datetime(2026, 11, 20, 15, 30)):
        for field, values in {
            "year": range(FIRST_DAY.year, LAST_DAY.year + 1),
            "month": range(1, 13),
            "day": range(1, 29),
            "hour": range(24),
            "minute": range(60),
            "second": range(60),
        }.items():
            probes += [base.replace(**{field: value}) for value in values]
    return probes


def _number_probes():
    """Gives numbers that differ from another in a digit, in the sign or in size."""
    digits = [Decimal(digit).scaleb(place) for digit in range(10) for place in range(-3, 7)]
    return [*digits, *(Decimal("1234567.089") + digit for digit in digits)]


def _locale(name, identifier):
    """Reads a locale, or says in one line what is wrong with it."""
    try:
        return Locale.parse(str(identifier).replace("-", "_"))
    except (UnknownLocaleError, ValueError) as error:
        raise ValueError(
            f"`{name}` must be a CLDR locale such as 'en', 'ko' or 'pt_BR'. "
            f"Received: {name}={identifier!r}"
        ) from error


def main(arguments=None):
    """Prints some pairs, source and target separated by a tab."""
    parser = argparse.ArgumentParser(description="Prints dates and numbers in two languages.")
    parser.add_argument("--source-locale", default="en", help="CLDR locale (default: en)")
    parser.add_argument("--target-locale", default="fr", help="CLDR locale (default: fr)")
    parser.add_argument("--count", type=int, default=10, help="number of pairs (default: 10)")
    parser.add_argument("--seed", type=int, default=0, help="another seed, other pairs")
    options = parser.parse_args(arguments)
    try:
        pairs = make_pairs(
            options.count, options.source_locale, options.target_locale, options.seed
        )
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    sys.stdout.reconfigure(encoding="utf-8")  # whatever the locale says
    for source, target in pairs:
        print(f"{source}\t{target}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
