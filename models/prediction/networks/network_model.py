"""Base class of the neural networks: training, scoring and files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Self

import numpy as np
import numpy.typing as npt

from forewarn.features.prediction.model_inputs import InputColumns, ModelInputs
from forewarn.models.prediction.hyperparameters import Range
from forewarn.models.prediction.linear.bucket_scaling import InputScaling
from forewarn.models.prediction.linear.log_odds import sigmoid
from forewarn.models.prediction.linear.loss_weights import loss_weights
from forewarn.models.prediction.linear.parameter_file import read_parameters, write_parameters
from forewarn.models.prediction.networks.keras_archive import (
    read_archive,
    read_network,
    write_archive,
)
from forewarn.models.prediction.networks.numpy_network import NumpyNetwork

__all__ = ["NetworkModel"]

_NETWORK_FILE = "network.keras"


class NetworkModel:
    """A failure model based on a Keras network; subclasses define the architecture.

    Keras trains the network and defines the file format. Scoring does not need Keras.

    Parameters
    ----------
    seed : int
        Seed of initial weights, dropout and batch order.
    purge : int
        Gap in nanoseconds (one horizon) between the training and validation parts of early
        stopping.
    positive_weight : float
        Multiplies the weights of positives in the loss.
    learning_rate : float
        Of Adam.
    l2 : float
        Ridge penalty of every layer.

    Attributes
    ----------
    columns_ : InputColumns
        Columns of the training instances.
    n_epochs_ : int
        Epochs of the fit on the whole span, chosen by early stopping.
    scaling_ : InputScaling
    network_ : NumpyNetwork
    archive_ : bytes
        The network as a `.keras` file.
    """

    columns_: InputColumns
    n_epochs_: int
    scaling_: InputScaling
    network_: NumpyNetwork
    archive_: bytes

    def __init__(
        self,
        *,
        seed: int,
        purge: int,
        positive_weight: float = 1.0,
        learning_rate: Annotated[float, Range(1e-6, 1.0, (1e-3, 1e-2), log=True)] = 3e-3,
        l2: Annotated[float, Range(0.0, 1.0, (1e-4, 1e-2), log=True)] = 1e-3,
    ) -> None:
        self.seed = seed
        self.purge = purge
        self.positive_weight = positive_weight
        self.learning_rate = learning_rate
        self.l2 = l2

    def build(self, keras: Any, length: int, n_channels: int, n_context: int) -> Any:
        """Return a network from [(length, n_channels), (n_context,)] to log odds of shape (1,)."""
        raise NotImplementedError

    def fit(
        self,
        inputs: ModelInputs,
        labels: npt.NDArray[np.int8],
        weights: npt.NDArray[np.float32],
        ends: npt.NDArray[np.int64],
    ) -> Self:
        """Fit on n instances, with early stopping on the later part of the span; see `train`."""
        # Imported here because scoring needs no TensorFlow.
        from forewarn.models.prediction.networks.network_training import Examples, train
        from forewarn.models.tensorflow_runtime import fresh_keras

        weighted = loss_weights(labels, weights, self.positive_weight)
        self.columns_, self.scaling_ = inputs.columns, InputScaling.fit(inputs)
        examples = Examples(inputs, self.scaling_, labels.astype(np.float32), weighted)
        sequence, context = self.scaling_.apply(inputs.select(slice(0, 1)))
        network = self.build(
            fresh_keras(self.seed), sequence.shape[1], sequence.shape[2], context.shape[1]
        )
        self.n_epochs_ = train(
            network,
            examples,
            ends,
            seed=self.seed,
            purge=self.purge,
            learning_rate=self.learning_rate,
        )
        self.archive_ = write_archive(network)
        self.network_ = NumpyNetwork.from_parts(read_network(network))
        return self

    def score(self, inputs: ModelInputs) -> npt.NDArray[np.float64]:
        """Return scores of shape (n,) in [0, 1]; high means likely to fail."""
        self.columns_.refuse_others(inputs.columns)
        return sigmoid(self.network_.log_odds(inputs, self.scaling_))

    def save(self, folder: Path) -> None:
        """Write the network as `.keras` and the scaling as JSON into an existing `folder`."""
        parameters = {
            "seed": self.seed,
            "purge": self.purge,
            "positive_weight": self.positive_weight,
            "n_epochs": self.n_epochs_,
            "columns": self.columns_.to_dict(),
            "scaling": self.scaling_.to_dict(),
        }
        (folder / _NETWORK_FILE).write_bytes(self.archive_)
        write_parameters(folder, parameters)

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Read the files that `save` wrote.

        Raises
        ------
        ValueError
            If a weight is not finite, or the network has other columns.
        """
        saved = read_parameters(folder)
        model = cls(
            seed=saved["seed"], purge=saved["purge"], positive_weight=saved["positive_weight"]
        )
        model.n_epochs_, model.columns_ = (
            saved["n_epochs"],
            InputColumns.from_dict(saved["columns"]),
        )
        model.scaling_ = InputScaling.from_dict(saved["scaling"], model.columns_)
        model.archive_ = (folder / _NETWORK_FILE).read_bytes()
        model.network_ = NumpyNetwork.from_parts(read_archive(model.archive_))
        _check_columns(model.network_, model.columns_)
        return model


def _check_columns(network: NumpyNetwork, columns: InputColumns) -> None:
    """Raise ValueError if the network has other columns."""
    widths = tuple(shape[-1] for shape in network.shapes)
    expected = (
        len(columns.sequence) + 1,
        len(columns.context) + 1,
    )  # one more for the share of missing values
    if widths != expected:
        raise ValueError(f"the network takes {widths} columns, expected {expected}")
