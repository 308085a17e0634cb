"""Why private labels are not among the declared classes: the likely mistake, without a label."""

from collections.abc import Iterable
from typing import Any

_EMPTY = {"", "nan", "none", "null", "na", "n/a", "nat"}


def cause_of_strangers(strangers: Iterable[str], classes: list[Any]) -> str:
    """Return the end of a sentence that says what is wrong with labels that are no classes, and what to do.

    Parameters
    ----------
    strangers : iterable of str
        The labels, private; what is returned depends on their kind only.
    classes : list
        The declared classes, all text or all whole numbers.
    """
    left = {text.strip() for text in strangers}
    empty = {text for text in left if text.casefold() in _EMPTY}
    if empty:
        return ": some labels are missing. Remove these rows, or declare a class for them."
    if left <= {str(value) for value in classes} or _folded(left) <= _folded(map(str, classes)):
        return ": some labels differ from a class by capital letters or blanks only. Spell both alike."
    numbers = [_number(text) for text in left]
    whole_classes = all(isinstance(value, int) for value in classes)
    if None in numbers:
        if whole_classes and set(numbers) == {None}:
            return ": it holds text, and `classes` are whole numbers. List the text itself in `classes`."
        return ". Correct these rows, or list every class in `classes`."
    if any(number != round(number) for number in numbers if number is not None):
        return ": it holds numbers with fractions, which are no classes. Sort them into classes first."
    if not whole_classes:
        return ": it holds numbers, and `classes` are text. List the numbers in `classes`."
    if {round(number) for number in numbers if number is not None} <= set(classes):
        return ": it holds whole numbers with a decimal point. Write them without one, as integers."
    return ". Correct these rows, or list every class in `classes`."


def _folded(texts: Iterable[str]) -> set[str]:
    return {text.casefold() for text in texts}


def _number(text: str) -> float | None:
    """Return the finite number that a text spells, if it does."""
    try:
        number = float(text)
    except ValueError:
        return None
    return number if abs(number) < float("inf") else None
