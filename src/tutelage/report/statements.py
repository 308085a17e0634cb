"""What only the people behind the data can say, in their own words, for a card to quote."""

import re

from tutelage.exceptions import InvalidParameterError

STATEMENTS = {
    "private_data": "what the private data are, and where they come from",
    "public_data": "what the public rows are, where they come from, and why they may be public",
    "collection": "why the private data were collected, on which ground, and how long they are kept",
    "leaves_site": "what leaves each site, and how",
    "trust": "who is trusted with what: owners, operators, other sites, the cloud",
    "why_epsilon": "why this ε was chosen",
    "evidence": "independent evidence: audits, reviews, their results",
    "side_channels": "what was done about side channels",
    "access": "how private files are secured, and who may read them",
    "withdrawal": "what happens if a site drops out, is dishonest, or someone withdraws consent",
    "overlap": "what was done to find private rows among the public ones",
    "fairness": "who is served worse, and what was done about it",
    "other_releases": "what else was released from the same private data",
    "legal": "the legal assessment: where the impact assessment is, and what it concluded",
    "exit": "how the software was obtained and can be rebuilt; which network it may reach",
}
_LONGEST = 4000
# What no card can know. A guarantee bounds what is learned; it makes nobody anonymous and nothing safe.
_OVERCLAIM = re.compile(
    r"\banonym\w*|\b(completely|fully|perfectly|absolutely|guaranteed|100 ?%) (safe|private|secure)\b|\brisk[- ]free\b"
    r"|\b(no|zero) (privacy )?risks?\b(?! (assess|analys))|\b(cannot|can not|can't|impossible to) (be )?re-?identif\w*",
    re.IGNORECASE,
)


def overclaim_in(text: str) -> str | None:
    """Return words that promise more than any ε does, such as that data were made anonymous, or None."""
    found = _OVERCLAIM.search(text)
    return None if found is None else found[0]


def check_statements(statements: dict[str, str]) -> None:
    """Refuse statements about unknown topics, of undue length, or that promise more than any ε does.

    Parameters
    ----------
    statements : dict of str to str
        Public text by topic; the topics are the names in `STATEMENTS`.

    Raises
    ------
    InvalidParameterError
        In one sentence: which topic, and the fix.
    """
    for topic, text in statements.items():
        if topic not in STATEMENTS:
            raise InvalidParameterError(f"`statements` of a card knows no {topic!r}. Topics: {', '.join(STATEMENTS)}.")
        if not text.strip() or len(text) > _LONGEST:
            raise InvalidParameterError(
                f"The statement {topic!r} must be text of 1 to {_LONGEST:,} characters. Got {len(text):,}."
            )
        claim = overclaim_in(text)
        if claim is not None:
            raise InvalidParameterError(
                f"The statement {topic!r} says {claim!r}, which differential privacy does not make true. Say what was "
                "done instead."
            )
