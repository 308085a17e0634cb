"""Statements that only the people behind the data can make, in their own words, for a card to quote."""

from tutelage.exceptions import InvalidParameterError

# The topics of the first page, then those of the annex. A topic is in files, so it is never renamed.
FIRST_PAGE = {
    "title": "the name of this release",
    "private_data": "the private data and their source",
    "controller": "the organization that decides why and how the data are used",
    "purpose": "the purpose of this release",
    "people": "the people in the data, and their number if it may be public",
    "intended_use": "the intended use of the labels and the student",
    "excluded_use": "the uses that are excluded",
    "without_privacy": "the accuracy of a model without privacy on the same rows",
    "signed_by": "the name and role of the person who signs",
    "review_date": "the date of the next review",
}
STATEMENTS = {
    **FIRST_PAGE,
    "public_data": "the public rows, their source, and why they may be public",
    "collection": "why the private data were collected, on which legal basis, and how long they are kept",
    "leaves_site": "what leaves each site, and how",
    "trust": "who is trusted with what: data set owners, operators, other sites, cloud providers",
    "why_epsilon": "why this ε was chosen",
    "evidence": "independent evidence: audits, reviews and their results",
    "side_channels": "measures against side channels",
    "access": "how private files are secured, and who may read them",
    "withdrawal": "what happens if a site drops out or is dishonest, or a person withdraws consent",
    "overlap": "how private rows were searched for among the public rows",
    "fairness": "which groups are served worse, and what was done about it",
    "other_releases": "other releases from the same private data",
    "legal": "the legal assessment: where it is kept, and its conclusion",
    "exit": "how the software was obtained and can be rebuilt; which network it may reach",
}
_LONGEST = 4000


def check_statements(statements: dict[str, str]) -> None:
    """Refuse statements about unknown topics or of undue length."""
    for topic, text in statements.items():
        if topic not in STATEMENTS:
            raise InvalidParameterError(
                f"`statements` of a card has no topic {topic!r}. Topics: {', '.join(STATEMENTS)}."
            )
        if not text.strip() or len(text) > _LONGEST:
            raise InvalidParameterError(
                f"The statement {topic!r} must be text of 1 to {_LONGEST:,} characters. Got {len(text):,}."
            )
