"""Statements that only the people behind the data can make, in their own words, for a card to quote."""

import re
import unicodedata

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
    "region": "the region that the data describe, for a deployment registry",
}
_LONGEST = 4000
_ONE_SPELLING = str.maketrans("\u2019\u2010\u2011\u2012\u2013", "'----")
# No card can know this. A guarantee bounds what is learned; it makes no data anonymous and nothing safe.
_WHOLLY = "completely|entirely|fully|perfectly|absolutely|totally|wholly|truly|utterly|100%|guaranteed|provably"
_IDENTIFIED = r"(re-?)?identif(y|ied|iable|ication)"
_OVERCLAIM = re.compile(
    r"\b(anonym|anonim)\w*|\bde-?identif\w*|\bun-?identifiable\b|\b(risk|leak)[\s-]*(free|less)\b"
    rf"|\b({_WHOLLY})[\s-]*(safe|private|secure|confidential)\b|\bguarantee[sd]?[\s-]*(privacy|safety|security)\b"
    r"|\b(privacy|safety) (is|are) (guaranteed|certain|assured)\b"
    r"|\b(no|zero|without|free of)[\s-]*(any )?(privacy |residual )?risks?\b(?! (assess|analys))"
    r"|\bno (more |remaining )?(personal|personally identifiable|identifying) (data|information) (is |are )?"
    r"(left|remain|contained|included)"
    rf"|\b(cannot|can not|can't|can never|impossible to) (ever )?(be )?({_IDENTIFIED}|linked|traced|singled out)\b"
    rf"|\b(nobody|no[\s-]one|no (person|individual|patient)) (can|could|will|is) (ever )?(be )?{_IDENTIFIED}"
    rf"|\b{_IDENTIFIED} (is|was|would be) (now )?(impossible|ruled out|excluded)\b|\bnot (re-?)?identifiable\b"
)
# Words before a claim that turn it around, with what may stand between: "is not claimed to be anonymous".
_DENIED_BEFORE = re.compile(
    r"\b(not|never|no claim|nobody claims|isn't|aren't|does not|do not|don't|cannot be (called|considered))"
    r"( (be|been|being|a|an|the|as|of|that|to|make[s]?|made|mean[s]?|claim(ed|s)?|call(ed)?|considered|is|are|it|"
    r"data|they|these|those|rows|results|student|labels|release))*[\s-]*$"
)
_DENIED_AFTER = re.compile(
    r"^ ((is|was|are|were) (not|never)|cannot be) (claimed|promised|stated|implied|given|assured)\b"
)


def overclaim_in(text: str) -> str | None:
    """Return words that promise more than any ε does, such as that data were made anonymous, or None.

    Full-width letters, invisible characters and extra spaces do not hide them. A denied claim is not a claim.
    """
    read = _as_read(text)
    for found in _OVERCLAIM.finditer(read):
        denied = _DENIED_BEFORE.search(read[: found.start()]) or _DENIED_AFTER.search(read[found.end() :])
        if not denied:
            return found[0]
    return None


def _as_read(text: str) -> str:
    """Return text as it reads aloud: lower-case letters of one width, with one space between words."""
    visible = "".join(letter for letter in unicodedata.normalize("NFKC", text) if unicodedata.category(letter) != "Cf")
    return re.sub(r"\b100 %", "100%", " ".join(visible.casefold().translate(_ONE_SPELLING).split()))


def check_statements(statements: dict[str, str]) -> None:
    """Refuse statements about unknown topics, of undue length, or that promise more than any ε does."""
    for topic, text in statements.items():
        if topic not in STATEMENTS:
            raise InvalidParameterError(
                f"`statements` of a card has no topic {topic!r}. Topics: {', '.join(STATEMENTS)}."
            )
        if not text.strip() or len(text) > _LONGEST:
            raise InvalidParameterError(
                f"The statement {topic!r} must be text of 1 to {_LONGEST:,} characters. Got {len(text):,}."
            )
        check_words(text, f"The statement {topic!r}")


def check_words(text: str, where: str) -> None:
    """Refuse text that promises more than any ε does."""
    claim = overclaim_in(text)
    if claim is not None:
        raise InvalidParameterError(
            f"{where} says {claim!r}, which differential privacy does not make true. State what was done instead."
        )
