"""What TensorBoard would show of a run."""


def names_in_tensorboard(directory):
    """The names of all values in the event files of a directory."""
    return (name for name, _ in values_in_tensorboard(directory))


def values_in_tensorboard(directory):
    """The (name, value) of all values in the event files of a directory, in order."""
    import tensorflow as tf
    from tensorflow.core.util.event_pb2 import Event

    for file in directory.iterdir():
        for record in tf.data.TFRecordDataset(str(file)):
            for value in Event.FromString(record.numpy()).summary.value:
                yield value.tag, tf.make_ndarray(value.tensor)
