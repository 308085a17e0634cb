"""24 faults of public code of PATE, or one slip away from it: each planted, each to be caught by a named check."""

from tutelage.audit.planted_faults import FAULTS
from tutelage.progress import progress_bar
from tutelage.reproductions.record import Record, Row


def reproduce(*, quick: bool, download: bool, progress: bool) -> Record:  # noqa: ARG001  there are no data
    """Return for every fault whether its check caught it; `quick` makes no difference, for it takes half a minute."""
    rows, caught, accepted = [], 0, 0
    for number, fault in enumerate(progress_bar(FAULTS, "faults", len(FAULTS), shown=progress), 1):
        found, right = fault.caught, fault.accepts_what_is_right
        caught, accepted = caught + found, accepted + right
        name = f"{number}. {fault.name} ({fault.planted}): caught by {fault.caught_by}"
        rows.append(Row(name=name, ours=float(found), at_least=1.0))
    rows.append(Row(name=f"caught of {len(FAULTS)}", ours=float(caught), at_least=float(len(FAULTS))))
    rows.append(Row(name="right implementations accused", ours=float(len(FAULTS) - accepted), at_most=0.0))
    return Record(
        name="planted-faults",
        source="Ganev, Annamalai and De Cristofaro 2024, arXiv:2406.13985, and more",
        rows=tuple(rows),
        quick=quick,
        notes=(
            "1 is caught, 0 is not. Beside every fault the same check sees the thing done rightly, and must accept it.",
            "Noise is real, so numbers of draws differ between runs; a right mechanism is accused with a probability "
            "below 1e-4 in all.",
        ),
    )
