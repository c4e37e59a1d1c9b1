"""TensorFlow and Keras, loaded on first use and set up to repeat themselves."""

from __future__ import annotations

import gc
import os
from functools import cache
from typing import Any

__all__ = ["fresh_keras", "keras", "tensorflow"]

# One, so that scores do not depend on how many cores a machine has. More do not pay: on these
# small networks a second thread took as much time in waiting as it saved in computing.
_THREADS = 1


@cache
def tensorflow() -> Any:
    """Return the module `tensorflow`: quiet, deterministic, on one thread.

    Settings that the environment has already are kept. Where a program has started TensorFlow
    before, its threads stay as they are.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    # Its kernels choose other orders of summation, and it greets on stderr whatever the level.
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
    os.environ.setdefault("KERAS_BACKEND", "tensorflow")
    import tensorflow as tf

    try:
        tf.config.threading.set_intra_op_parallelism_threads(_THREADS)
        tf.config.threading.set_inter_op_parallelism_threads(_THREADS)
    except RuntimeError:  # started already: threads cannot be changed any more
        pass
    tf.config.experimental.enable_op_determinism()
    return tf


@cache
def keras() -> Any:
    """Return the module `keras`, on TensorFlow."""
    tensorflow()
    import keras as module

    # What the two libraries hold lives as long as the process. Before each fit Keras looks for
    # garbage, and looking through all of that took 0.2 s every time.
    gc.freeze()
    return module


def fresh_keras(seed: int) -> Any:
    """Return `keras` without what earlier fits left, with every generator seeded.

    The generators of `random` and `numpy.random` are seeded too, because Keras draws from them.
    """
    module = keras()
    module.backend.clear_session()
    module.utils.set_random_seed(seed)
    return module
