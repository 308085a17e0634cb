"""Text and tables as HTML in which names are text, whatever they hold."""

import html

# Characters that turn the direction of what follows, so that a name could be read as another one.
_DIRECTIONS = dict.fromkeys([*range(0x202A, 0x202F), *range(0x2066, 0x206A), 0x200E, 0x200F, 0x061C])
_CONTROLS = {code: "�" for code in (*range(0x20), *range(0x7F, 0xA0)) if chr(code) not in "\n\t"}


def straight(text: str) -> str:
    """Return text that neither turns the line around nor holds control characters."""
    return text.translate(_DIRECTIONS | _CONTROLS)


def escape(text: str) -> str:
    """Return text as it may stand in a page or drawing: it can neither open a tag nor turn the line around."""
    return html.escape(straight(text), quote=True)


def facts(rows: tuple[tuple[str, str], ...]) -> str:
    """Return names and values as a table."""
    cells = (f'<tr><th scope="row">{escape(name)}</th><td>{escape(value)}</td></tr>' for name, value in rows)
    return f"<table class=facts><tbody>{''.join(cells)}</tbody></table>"


def fragment(
    title: str,
    claim: str,
    rows: tuple[tuple[str, str], ...],
    drawn: str = "",
) -> str:
    """Return a short summary for notebooks: a labeled section, with what is drawn below it as HTML."""
    head = f"<p><strong>{escape(title)}</strong> {escape(claim)}</p>"
    return f'<section aria-label="{escape(title)}">{head}{facts(rows)}{drawn}</section>'
