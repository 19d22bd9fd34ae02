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
BATCH_BYTES = 2**20  # of lines, after which a batch ends early
BLOCK_BYTES = 2**20
ROWS_PER_GROUP = 2**14  # of Parquet, which are kept until they are written together
JSON_ENDINGS = (".jsonl", ".ndjson")


class Row(NamedTuple):
    """One text of a shard.

    Attributes:
        text: valid UTF-8; b"" for a row that is wrong.
        wrong: why it cannot be translated, or "".
        input: the row as a list of wrong ones shows it.
        record: the other fields of JSON.
    """

    text: bytes
    wrong: str
    input: str
    record: dict[str, Any]


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
            return Row(b"", f"is longer than {LONGEST_LINE:,} bytes", shown[:1000], {})
        try:
            return self.parse(line, shown, number)
        except UnicodeError:
            return Row(b"", "is not valid UTF-8", shown, {})

    def parse(self, line: bytes, shown: str, number: int) -> Row:
        """The row of a line of bearable length; `UnicodeError` where it is not UTF-8."""
        line.decode("utf-8")
        return Row(line, "", shown, {})

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


class JsonShard(TextShard):
    """A JSON object a line, whose other fields are kept."""

    def parse(self, line: bytes, shown: str, number: int) -> Row:
        """The row of an object."""
        decoded = line.decode("utf-8")
        try:
            record = json.loads(decoded)
        except (ValueError, RecursionError):
            return Row(b"", "is not JSON", shown, {})
        if not isinstance(record, dict):
            return Row(b"", "is not a JSON object", shown, {})
        if self.output_field in record:
            raise ValueError(
                f"{self.path}: line {number} has a field {self.output_field!r} already. Give "
                "another name for that of the translations."
            )
        text: Any = record.get(self.field)
        if not isinstance(text, str):
            found = "is not a string" if self.field in record else "is missing"
            return Row(b"", f"its field {self.field!r} {found}", shown, record)
        try:
            return Row(text.encode("utf-8"), "", shown, record)
        except UnicodeError:
            return Row(b"", f"its field {self.field!r} has half a character", shown, record)

    def format_line(self, row: Row, translation: str | None) -> bytes:
        """The object with its translation."""
        record = {**row.record, self.output_field: translation}
        try:
            return json.dumps(record, ensure_ascii=False).encode("utf-8")
        except UnicodeError:  # half a character, which JSON alone can write
            return json.dumps(record).encode("ascii")


class ParquetShard(Shard):
    """A file of Parquet, whose other columns are kept."""

    def batches(self, size: int) -> Iterator[Batch]:
        """Yields batches of rows."""
        import pyarrow

        with self._opened() as file:
            for table in file.iter_batches(batch_size=size):
                column = table.column(self.field)
                kind = str(column.type).replace("string", "binary")  # some may not be UTF-8
                texts = column.cast(pyarrow.type_for_alias(kind)).to_pylist()
                yield Batch([self.read(text) for text in texts], table)

    def read(self, text: bytes | None) -> Row:
        """The row of a text."""
        if text is None:
            return Row(b"", "is null", "", {})
        try:
            return Row(text, "", text.decode("utf-8"), {})
        except UnicodeDecodeError:
            return Row(b"", "is not valid UTF-8", text.decode("utf-8", "backslashreplace"), {})

    @contextlib.contextmanager
    def writer(self, stream: BinaryIO) -> Iterator[Write]:
        """Writes the rows with one more column, some thousands of them at a time."""
        import pyarrow
        import pyarrow.parquet

        with self._opened() as file:
            new = pyarrow.field(self.output_field, pyarrow.string())
            schema = file.schema_arrow.append(new)
        kept: list[Any] = []

        def flush() -> None:
            output.write_table(pyarrow.Table.from_batches(kept, schema))
            kept.clear()

        def write(batch: Batch, translations: Sequence[str | None]) -> None:
            column = pyarrow.array(translations, pyarrow.string())
            arrays = [*batch.table.columns, column]
            kept.append(pyarrow.RecordBatch.from_arrays(arrays, schema=schema))
            if sum(map(len, kept)) >= ROWS_PER_GROUP:
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
            with pyarrow.parquet.ParquetFile(self.path) as file:
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
