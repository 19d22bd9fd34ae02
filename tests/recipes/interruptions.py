"""Ends of training runs before their time."""

import keras


class Stop(keras.callbacks.Callback):
    """Interrupts a training run in an epoch, as Ctrl-C does."""

    def __init__(self, epoch):
        super().__init__()
        self.epoch = epoch

    def on_train_batch_end(self, batch, logs=None):
        if self.epoch_now == self.epoch:
            raise KeyboardInterrupt

    def on_epoch_begin(self, epoch, logs=None):
        self.epoch_now = epoch
