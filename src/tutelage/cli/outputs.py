"""What several verbs say about a budget, and where they may write."""

from pathlib import Path

from tutelage.budget import round_up
from tutelage.exceptions import ConfigError
from tutelage.ledger import LedgerState


def spent_and_remaining(state: LedgerState) -> str:
    """Return how much of a budget is spent, rounded upward, and what remains."""
    spent = round_up(state.spent)
    return f"{spent:.4f} of ε = {state.budget:g} is spent, {max(0.0, state.budget - spent):.4f} remains."


def check_output(output: Path, *inputs: Path) -> None:
    """Refuse, before anything is spent, to write where there is no folder or over one of the files that are read.

    Parameters
    ----------
    output : path
        Where results are to go.
    *inputs : paths
        Files that must stay.

    Raises
    ------
    ConfigError
        If it is one of them, or not in a folder.
    """
    if not output.parent.is_dir() or output.is_dir():
        raise ConfigError(f"--output must be a file in a folder that exists. Got {output}.")
    journals = [path.with_name(f"{path.name}-journal") for path in inputs]
    if output.resolve() in {path.resolve() for path in (*inputs, *journals)}:
        raise ConfigError(f"--output must be a file of its own. Got {output}, which is read.")
