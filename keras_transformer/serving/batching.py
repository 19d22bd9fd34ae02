"""Splits any batch into padded chunks of a few fixed shapes, so that few shapes are compiled."""

import tensorflow as tf


def powers_of_two(smallest, largest):
    """The sizes `smallest`, 2 * smallest, ... up to `largest`, which is always the last."""
    sizes = []
    while smallest < largest:
        sizes.append(smallest)
        smallest *= 2
    return [*sizes, largest]


def largest_batches(length_sizes, max_batch_tokens):
    """For each length the largest power of two of rows that hold at most so many tokens, or 1."""
    return [2 ** (max(max_batch_tokens // size, 1).bit_length() - 1) for size in length_sizes]


def next_size(sizes, needed):
    """The first of the ascending `sizes` that is at least `needed`: its index, and itself."""
    sizes = tf.constant(sizes, tf.int32)
    index = tf.searchsorted(sizes, tf.reshape(needed, [1]))[0]
    return index, tf.gather(sizes, index)


def pad_rows(tensor, rows):
    """Repeats the first row of `tensor` (at least one) at its end until there are `rows`.

    A repeated row ends when its original does; a row of padding might run to the length limit.
    """
    missing = rows - tf.shape(tensor)[0]
    repeats = tf.concat([[missing], tf.ones([tf.rank(tensor) - 1], tf.int32)], axis=0)
    return tf.concat([tensor, tf.tile(tensor[:1], repeats)], axis=0)


def pad_columns(ids, columns, pad_id):
    """Cuts or pads ids (rows, length) to `columns`; what is cut must be padding."""
    ids = ids[:, :columns]
    return tf.pad(ids, [[0, 0], [0, columns - tf.shape(ids)[1]]], constant_values=pad_id)


def is_ids(tensor):
    """Whether a tensor has columns, which are padded."""
    return tensor.shape.rank == 2


def map_chunks(function, inputs, lengths, output_specs, length_sizes, row_limits, pad_id):
    """Applies `function` to chunks of rows of like length, and gives the results in input order.

    Args:
        function: takes as many tensors as there are inputs, ids (rows, length) and others (rows,):
            the length one of `length_sizes`, the rows a power of two up to the limit of that
            length. Returns a list of tensors with the same number of rows.
        inputs: list of id tensors (batch, any length), padded, and of tensors (batch,); batch may
            be 0.
        lengths: (batch,) number of columns that a row needs in the longest of the inputs.
        output_specs: a `tf.TensorSpec` for each output, its first dimension None.
        length_sizes: ascending list of lengths.
        row_limits: for each of them the largest number of rows, powers of two, descending.
        pad_id: fills the columns.

    Returns:
        List of tensors, each output for the whole batch.
    """
    order = tf.argsort(lengths, direction="DESCENDING", stable=True)
    inputs = [tf.gather(ids, order) for ids in inputs]
    lengths = tf.gather(lengths, order)
    batch_size, batch_sizes = tf.shape(lengths)[0], powers_of_two(1, row_limits[0])

    def more(start, *outputs):
        return start < batch_size

    def next_chunk(start, *outputs):
        index, columns = next_size(length_sizes, lengths[start])
        end = tf.minimum(start + tf.gather(row_limits, index), batch_size)
        _, rows = next_size(batch_sizes, end - start)
        chunk = [part[start:end] for part in inputs]
        chunk = [pad_columns(part, columns, pad_id) if is_ids(part) else part for part in chunk]
        chunk = [pad_rows(part, rows) for part in chunk]
        results = [result[: end - start] for result in function(*chunk)]
        return (end, *(tf.concat(pair, axis=0) for pair in zip(outputs, results, strict=True)))

    empty = [tf.zeros([0, *spec.shape[1:]], spec.dtype) for spec in output_specs]
    invariants = (tf.TensorShape([]), *(spec.shape for spec in output_specs))
    _, *outputs = tf.while_loop(
        more, next_chunk, (tf.constant(0), *empty), invariants, parallel_iterations=1
    )
    back = tf.argsort(order)
    return [tf.gather(output, back) for output in outputs]
