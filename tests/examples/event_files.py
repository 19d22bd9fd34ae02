"""What TensorBoard would show of a run."""


def names_in_tensorboard(directory):
    """The names of all values in the event files of a directory."""
    import tensorflow as tf
    from tensorflow.core.util.event_pb2 import Event

    for file in directory.iterdir():
        for record in tf.data.TFRecordDataset(str(file)):
            yield from (value.tag for value in Event.FromString(record.numpy()).summary.value)
