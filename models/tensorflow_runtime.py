"""Loads TensorFlow and Keras on first use and makes them deterministic."""

from __future__ import annotations

import gc
import os
from functools import cache
from typing import Any

__all__ = ["fresh_keras", "keras", "tensorflow"]

# One thread, so that scores do not depend on the number of cores. More threads are not faster: on
# these small networks a second one spends as much time waiting as it saves in computing.
_THREADS = 1


@cache
def tensorflow() -> Any:
    """Return the module `tensorflow`: quiet, deterministic, on one thread.

    Settings already in the environment are kept. If the program has started TensorFlow before, its
    number of threads stays as it is.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    # oneDNN sums in another order and prints to stderr at every log level.
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
    os.environ.setdefault("KERAS_BACKEND", "tensorflow")
    import tensorflow as tf

    try:
        tf.config.threading.set_intra_op_parallelism_threads(_THREADS)
        tf.config.threading.set_inter_op_parallelism_threads(_THREADS)
    except RuntimeError:  # already started: the number of threads is fixed
        pass
    tf.config.experimental.enable_op_determinism()
    return tf


@cache
def keras() -> Any:
    """Return the module `keras`, on TensorFlow."""
    tensorflow()
    import keras as module

    # Both libraries stay loaded until the process ends. Keras collects garbage before each fit;
    # scanning all of their objects took 0.2 s every time.
    gc.freeze()
    return module


def fresh_keras(seed: int) -> Any:
    """Return `keras` without the state of earlier fits and with all random generators seeded.

    The generators of `random` and `numpy.random` are seeded too, because Keras draws from them.
    """
    module = keras()
    module.backend.clear_session()
    module.utils.set_random_seed(seed)
    return module
