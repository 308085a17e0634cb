"""The classifier of the OpenMined tutorial."""

from dataclasses import dataclass

from torch import nn

from tutelage.networks import ImageInput


@dataclass(frozen=True)
class TutorialNetwork:
    """Factory of the tutorial's classifier: two convolutions, 50 hidden units, dropout of channels and of these.

    Parameters
    ----------
    image_shape : tuple of int
        (height, width) or (height, width, channels) of the flattened rows.
    """

    image_shape: tuple[int, ...]

    def __call__(self, n_classes: int) -> nn.Module:
        """Return an untrained network with one output per class."""
        height, width, colours = (*self.image_shape, 1)[:3]
        inner = (((height - 4) // 2 - 4) // 2) * (((width - 4) // 2 - 4) // 2)
        return nn.Sequential(
            ImageInput(self.image_shape),
            *(nn.Conv2d(colours, 10, 5), nn.MaxPool2d(2), nn.ReLU()),
            *(nn.Conv2d(10, 20, 5), nn.Dropout2d(), nn.MaxPool2d(2), nn.ReLU(), nn.Flatten()),
            *(nn.Linear(20 * inner, 50), nn.ReLU(), nn.Dropout(), nn.Linear(50, n_classes)),
        )
