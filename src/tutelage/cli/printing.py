"""What somebody typed or another member wrote, as it may be printed: it moves no cursor and gives no color."""


def printable(text: object) -> str:
    """Return the text with every character that a terminal would obey, but for line breaks, spelled as an escape."""
    return "".join(
        each if each.isprintable() or each == "\n" else each.encode("unicode_escape").decode() for each in str(text)
    )
