"""The files of a collection, row by row: text, JSON lines and Parquet in, the same out.

A row that is wrong keeps its place, and the reason is told.
"""

import abc
import contextlib
import gzip
import importlib.util
import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any, BinaryIO, NamedTuple

from keras_transformer.line_files import (
    GZIP_MAGIC,
    ONE_LINE,
    check_is_file,
    each_line,
    open_lines,
)

LONGEST_LINE = 2**24  # bytes of a line that is read
BATCH_BYTES = 2**20  # of lines, or of all columns, after which a batch ends early
BLOCK_BYTES = 2**20
ROWS_AT_ONCE = 64  # of Parquet, whose bytes are known when they are read
# Rows of Parquet are kept until so many are written together, or rows of so many bytes.
ROWS_PER_GROUP, GROUP_BYTES = 2**14, 2**25
JSON_ENDINGS = (".jsonl", ".ndjson")


class Row(NamedTuple):
    """One text of a shard.

    Attributes:
        text: valid UTF-8; b"" for a row that is wrong.
        wrong: why it cannot be translated, or "".
        input: the row as a list of wrong ones shows it.
        json: the object of JSON that the row is, without its last brace; b"" for none.
    """

    text: bytes
    wrong: str
    input: str
    json: bytes = b""


class Batch(NamedTuple):
    """Some rows of a shard, and of Parquet their table."""

    rows: list[Row]
    table: Any = None


# Writes the translations of a batch, None for a row without one.
Write = Callable[[Batch, Sequence[str | None]], None]


class Shard(abc.ABC):
    """One file of a collection.

    Args:
        path: the file.
        field: the field or column of the texts; "" for plain text.
        output_field: that of the translations.
    """

    def __init__(self, path: str, field: str, output_field: str) -> None:
        self.path, self.field, self.output_field = path, field, output_field

    @abc.abstractmethod
    def batches(self, size: int) -> Iterator[Batch]:
        """Yields batches of at most `size` rows, in order.

        Raises:
            ValueError: when the file is damaged, or its translations cannot be added.
        """

    @abc.abstractmethod
    def writer(self, stream: BinaryIO) -> contextlib.AbstractContextManager[Write]:
        """Gives the function that writes translations to a new file."""

    @abc.abstractmethod
    def count(self, path: str) -> int:
        """Counts the rows of a file that `writer` wrote."""


class TextShard(Shard):
    """A text a line, plain or gzip."""

    def batches(self, size: int) -> Iterator[Batch]:
        """Yields batches of lines."""
        rows: list[Row] = []
        room = BATCH_BYTES
        for number, line in enumerate(each_line(self.path, LONGEST_LINE), start=1):
            rows.append(self.read(line, number))
            room -= len(line)
            if len(rows) == size or room <= 0:
                yield Batch(rows)
                rows, room = [], BATCH_BYTES
        if rows:
            yield Batch(rows)

    def read(self, line: bytes, number: int) -> Row:
        """The row of a line."""
        shown = line.decode("utf-8", "backslashreplace")
        if len(line) > LONGEST_LINE:
            return Row(b"", f"is longer than {LONGEST_LINE:,} bytes", shown[:1000])
        try:
            return self.parse(line, shown, number)
        except UnicodeError:
            return Row(b"", "is not valid UTF-8", shown)

    def parse(self, line: bytes, shown: str, number: int) -> Row:
        """The row of a line of bearable length; `UnicodeError` where it is not UTF-8."""
        line.decode("utf-8")
        return Row(line, "", shown)

    @contextlib.contextmanager
    def writer(self, stream: BinaryIO) -> Iterator[Write]:
        """Writes a line for each row; gzip where the shard is gzip."""
        packed: Any = stream
        if is_gzip(self.path):  # without time or name: the same rows are the same bytes
            packed = gzip.GzipFile("", "wb", fileobj=stream, mtime=0)

        def write(batch: Batch, translations: Sequence[str | None]) -> None:
            for row, translation in zip(batch.rows, translations, strict=True):
                packed.write(self.format_line(row, translation) + b"\n")

        yield write
        if packed is not stream:
            packed.close()

    def format_line(self, row: Row, translation: str | None) -> bytes:
        """The line of a row."""
        return (translation or "").translate(ONE_LINE).encode("utf-8")

    def count(self, path: str) -> int:
        """Counts lines."""
        with open_lines(path) as stream:
            return sum(block.count(b"\n") for block in iter(lambda: stream.read(BLOCK_BYTES), b""))


class Members(list[tuple[str, Any]]):
    """What an object of JSON holds: names and values, in order, some names perhaps twice."""


# Numbers may be longer than Python converts, and none is the text of a row.
JSON = json.JSONDecoder(
    object_pairs_hook=Members,
    parse_int=lambda digits: None,
    parse_float=lambda digits: None,
    parse_constant=lambda name: None,
)


class JsonShard(TextShard):
    """A JSON object a line, which is kept as it is written, with one more member at its end."""

    def parse(self, line: bytes, shown: str, number: int) -> Row:
        """The row of an object."""
        decoded = line.decode("utf-8")
        try:
            members = JSON.decode(decoded)
        except RecursionError:
            return Row(b"", "is nested too deeply", shown)
        except ValueError:
            return Row(b"", "is not JSON", shown)
        if not isinstance(members, Members):
            return Row(b"", "is not a JSON object", shown)
        names = [name for name, _ in members]
        if self.output_field in names:
            raise ValueError(
                f"{self.path}: line {number} has a field {self.output_field!r} already. Give "
                "another name for that of the translations."
            )
        text, wrong = b"", ""
        if (count := names.count(self.field)) != 1:
            wrong = f"is there {count} times" if count else "is missing"
        elif not isinstance(value := members[names.index(self.field)][1], str):
            wrong = "is not a string"
        else:
            try:
                text = value.encode("utf-8")
            except UnicodeError:
                wrong = "has half a character"
        reason = f"its field {self.field!r} {wrong}" if wrong else ""
        return Row(text, reason, shown, line.rstrip(b" \t\r")[:-1])

    def format_line(self, row: Row, translation: str | None) -> bytes:
        """The object with its translation; where there is none, one with null alone."""
        kept = row.json or b"{"
        comma = b"" if kept.strip() == b"{" else b", "
        member = f"{json_text(self.output_field)}: {json_text(translation)}}}"
        # Half a character is written as JSON escapes it.
        return kept + comma + member.encode("utf-8", "backslashreplace")


def json_text(value: str | None) -> str:
    """A value as JSON has it, with letters of any script."""
    return json.dumps(value, ensure_ascii=False)


class ParquetShard(Shard):
    """A file of Parquet, whose other columns are kept."""

    def batches(self, size: int) -> Iterator[Batch]:
        """Yields batches of rows."""
        with self._opened() as file:
            kept: list[Any] = []
            room = BATCH_BYTES
            for piece in self._pieces(file, size):
                if sum(map(len, kept)) + len(piece) > size:
                    yield self._batch(kept)
                    kept, room = [], BATCH_BYTES
                kept.append(piece)
                room -= piece.nbytes
                if room <= 0:
                    yield self._batch(kept)
                    kept, room = [], BATCH_BYTES
            if kept:
                yield self._batch(kept)

    def _pieces(self, file: Any, size: int) -> Iterator[Any]:
        """Yields a few rows at a time, one where the rows of a group are long."""
        most = -(-size // -(-size // ROWS_AT_ONCE))  # equal parts of a batch
        for number in range(file.num_row_groups):
            group = file.metadata.row_group(number)
            average = group.total_byte_size // max(1, group.num_rows)
            rows = min(most, max(1, BATCH_BYTES // max(1, average)))
            yield from file.iter_batches(rows, row_groups=[number])

    def _batch(self, pieces: list[Any]) -> Batch:
        """The batch of rows that were read in pieces."""
        import pyarrow

        table = pyarrow.Table.from_batches(pieces)
        column = table.column(self.field)
        kind = str(column.type).replace("string", "binary")  # some may not be UTF-8
        texts = column.cast(pyarrow.type_for_alias(kind)).to_pylist()
        return Batch([self.read(text) for text in texts], table)

    def read(self, text: bytes | None) -> Row:
        """The row of a text."""
        if text is None:
            return Row(b"", "is null", "")
        try:
            return Row(text, "", text.decode("utf-8"))
        except UnicodeDecodeError:
            return Row(b"", "is not valid UTF-8", text.decode("utf-8", "backslashreplace"))

    @contextlib.contextmanager
    def writer(self, stream: BinaryIO) -> Iterator[Write]:
        """Writes the rows with one more column, some thousands of them at a time."""
        import pyarrow
        import pyarrow.parquet

        with self._opened() as file:
            new = pyarrow.field(self.output_field, pyarrow.string())
            schema = file.schema_arrow.append(new)
        kept: list[Any] = []
        rows = size = 0

        def flush() -> None:
            nonlocal rows, size
            output.write_table(pyarrow.concat_tables(kept))
            kept.clear()
            rows = size = 0

        def write(batch: Batch, translations: Sequence[str | None]) -> None:
            nonlocal rows, size
            columns = [*batch.table.columns, pyarrow.array(translations, pyarrow.string())]
            kept.append(table := pyarrow.Table.from_arrays(columns, schema=schema))
            rows, size = rows + len(table), size + table.nbytes
            if rows >= ROWS_PER_GROUP or size >= GROUP_BYTES:
                flush()

        with pyarrow.parquet.ParquetWriter(stream, schema) as output:
            yield write
            if kept:
                flush()

    def count(self, path: str) -> int:
        """Counts rows, which the file knows."""
        import pyarrow.parquet

        return pyarrow.parquet.read_metadata(path).num_rows

    @contextlib.contextmanager
    def _opened(self) -> Iterator[Any]:
        """The file of pyarrow, whose column of texts is one of strings."""
        import pyarrow
        import pyarrow.parquet

        check_is_file(self.path)
        try:
            # Columns are read by and by, not a whole group of rows at once.
            options = {"pre_buffer": False, "buffer_size": BLOCK_BYTES}
            with pyarrow.parquet.ParquetFile(self.path, **options) as file:
                self._check_columns(file.schema_arrow)
                yield file
        except (pyarrow.ArrowException, OSError) as error:
            message = f"{self.path}: cannot be read ({error}). Make the file anew."
            raise ValueError(message) from error

    def _check_columns(self, schema: Any) -> None:
        names = schema.names
        if names.count(self.field) != 1:
            raise ValueError(
                f"{self.path}: has {'several columns' if self.field in names else 'no column'} "
                f"{self.field!r}. Its columns are {', '.join(names)}."
            )
        kind = str(schema.field(self.field).type)
        if kind not in ("string", "large_string", "string_view"):
            raise ValueError(
                f"{self.path}: the column {self.field!r} must hold strings. Received: {kind}"
            )
        if self.output_field in names:
            raise ValueError(
                f"{self.path}: has a column {self.output_field!r} already. Give another name for "
                "that of the translations."
            )


def open_shard(path: str, field: str | None, output_field: str) -> Shard:
    """The shard of a file, by how its name ends.

    Raises:
        ValueError: when there is no such file, or `field` is missing, or given for plain text.
        ImportError: when the file is Parquet and pyarrow is not installed.
    """
    check_is_file(path)
    name = path.removesuffix(".gz")
    kind: type[Shard] = JsonShard if name.endswith(JSON_ENDINGS) else TextShard
    if path.endswith(".parquet"):
        kind = ParquetShard
        if importlib.util.find_spec("pyarrow") is None:
            raise ImportError(
                "pyarrow is not installed. Install it with "
                '`pip install "keras-transformer-components[parquet]"`'
            )
    if kind is TextShard and field is not None:
        endings = ", ".join((*JSON_ENDINGS, ".parquet"))
        raise ValueError(
            f"`field` must be left out for plain text; other files end in {endings}. "
            f"Received: field={field!r}, {path}"
        )
    if kind is not TextShard and not field:
        raise ValueError(
            f"`field` must name the field of the texts. Received: field={field!r}, {path}"
        )
    return kind(path, field or "", output_field)


def is_gzip(path: str) -> bool:
    """Whether a file is compressed with gzip, whatever it is called."""
    with open(path, "rb") as file:
        return file.read(len(GZIP_MAGIC)) == GZIP_MAGIC
