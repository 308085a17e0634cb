"""Where networks run."""

import torch

from tutelage.exceptions import InvalidParameterError


def device_named(name: str | None, owner: str) -> torch.device:
    """Return the device of this name; without one an accelerator, if there is one that torch can use.

    Parameters
    ----------
    name : str, optional
        ``"cpu"``, ``"cuda"``, ``"cuda:1"``.
    owner : str
        Whose parameter `device` it is, for the error.

    Raises
    ------
    InvalidParameterError
        If torch cannot use it here.
    """
    if name is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, TypeError):
        raise InvalidParameterError(
            f"`device` of {owner} must be one that torch can use here, such as 'cpu'. Got {name!r}."
        ) from None
    return device
