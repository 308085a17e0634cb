"""Every error and warning of tutelage.

An error is an output: a message names parameters, columns and files, never a vote count, a private label or a row.
"""

import re
import sys
from collections.abc import Iterable, Sequence
from numbers import Real
from string import Template
from typing import ClassVar, NamedTuple, Protocol, Self

_MOST_LETTERS = 60
_SWITCHES = ("insist",)  # parameters that sentences say how to turn on


def quote(value: object) -> str:
    """Return a value as an error quotes it: a number or short text; of all else, which may be rows, its type."""
    if value is None or isinstance(value, Real | str):
        text = repr(value)
        if len(text) <= _MOST_LETTERS:
            return text
    return f"a {type(value).__name__}"


def _for_owner(text: str) -> str:
    """Return text for the owner of private rows; without numbers outside of names in a notebook, which is stored."""
    if "ipykernel" not in sys.modules:
        return text
    stored = re.sub(r"('[^']*'|`[^`]*`)|(?<!\w)\d([\d.,]*\d)?", lambda match: match[1] or "…", text)
    if stored == text:
        return text
    return f"{stored} Notebooks are stored, so numbers are shown only outside of a notebook."


_OF_FIT = "PATEClassifier.fit"  # to what the parameters belong that findings about rows name


class _Naming(Protocol):
    """How an interface calls a parameter, by what it belongs to."""

    def __call__(self, owner: str, name: str, *, first: bool = True) -> str:
        """Return the name of a parameter: `first` in the sentence about it, or later in one about another."""
        ...


def in_python(owner: str, name: str, *, first: bool = True) -> str:
    """Return how a program calls a parameter."""
    if name in _SWITCHES and not first:
        return f"`{name}=True`"
    called = name if name.startswith("-") or " " in name else f"`{name}`"
    return f"{called} of {owner}" if owner and first else called


class Problem(NamedTuple):
    """A parameter that is not what it must be; each interface makes the sentence in its own words.

    Attributes
    ----------
    name : str
        The parameter, after what it belongs to: ``GNMax.sigma``.
    must : str
        What it must do, as in ``be a number above 0``. Other parameters are written ``$budget``.
    got : str
        What was given, if that is public.
    fix : str
        What to do, in one sentence or more.
    """

    name: str
    must: str
    got: str = ""
    fix: str = ""

    def sentence(self, naming: _Naming = in_python) -> str:
        """Return the sentence in the words of an interface."""
        owner, _, name = self.name.rpartition(".")
        if not (name.isidentifier() or name.startswith("-")):
            owner = ""
            name = self.name

        text = f"{naming(owner, name)} must {_in_words(self.must, owner, naming)}."
        if self.got:
            text += f" Got {self.got}."
        if self.fix:
            text += f" {_in_words(self.fix, owner, naming)}"
        return text


class _Others(dict[str, str]):
    """The other parameters that a sentence names, in the words of an interface."""

    def __init__(self, owner: str, naming: _Naming) -> None:
        super().__init__()
        self._owner = owner
        self._naming = naming

    def __missing__(self, name: str) -> str:
        return self._naming(self._owner, name, first=False)


def _in_words(text: str, owner: str, naming: _Naming) -> str:
    return Template(text).safe_substitute(_Others(owner, naming))


def literal(text: object) -> str:
    """Return text for a sentence of a problem in which no sign names a parameter."""
    return str(text).replace("$", "$$")


class TutelageError(Exception):
    """Base of all errors of tutelage. Programs should compare `code`, which is stable; messages may be reworded.

    Attributes
    ----------
    code : str
        Name of the kind of error, one for each class.
    parameter : str or None
        The parameter that an `InvalidParameterError` is about.
    """

    code: ClassVar[str] = "tutelage"
    parameter: str | None = None

    def __init_subclass__(cls, *, code: str | None = None) -> None:
        super().__init_subclass__()
        cls.code = code or cls.code

    def sentences(self, _naming: _Naming = in_python, /) -> tuple[str, ...]:
        """Return a text for each problem, one sentence or more, in the words of an interface."""
        return tuple(map(str, self.args))

    def __str__(self) -> str:
        return "\n".join(self.sentences())


class InvalidParameterError(TutelageError, ValueError, code="invalid-parameter"):
    """A parameter is outside its documented range.

    Parameters
    ----------
    name, must, got, fix : str
        The `Problem`.

    Attributes
    ----------
    problems : tuple of Problem
        All problems of the call.
    """

    def __init__(self, name: str, must: str, got: str = "", fix: str = "") -> None:
        super().__init__(name, must, got, fix)
        self.problems = (Problem(*self.args),)
        self.parameter = name.rpartition(".")[2]

    @classmethod
    def of(cls, problems: Sequence[Problem]) -> Self:
        """Return one error for several problems."""
        error = cls(*problems[0])
        error.problems = tuple(problems)
        return error

    @classmethod
    def raise_for(cls, problems: Iterable[Problem]) -> None:
        """Raise one error for several problems, if there are any."""
        found = list(problems)
        if found:
            raise cls.of(found)

    def sentences(self, naming: _Naming = in_python, /) -> tuple[str, ...]:
        """Return a text for each problem, one sentence or more, in the words of an interface."""
        return tuple(dict.fromkeys(problem.sentence(naming) for problem in self.problems))


class InvalidDataError(TutelageError, ValueError, code="invalid-data"):
    """Rows, labels, votes or a file cannot be used as given."""


class UnknownParameterError(InvalidParameterError, TypeError, code="unknown-parameter"):
    """A class was given a parameter that it does not have."""


class PreflightError(InvalidDataError, code="preflight"):
    """A check of the rows before the first release failed. Nothing was spent, and no ledger was changed."""

    def sentences(self, naming: _Naming = in_python, /) -> tuple[str, ...]:
        """Return a text for each problem, one sentence or more, in the words of an interface."""
        return tuple(_for_owner(_in_words(problem, _OF_FIT, naming)) for problem in self.args)


class OverlappingShardsError(InvalidDataError, code="overlapping-shards"):
    """The rows of one entity would go to more than one teacher, so one entity could change several votes."""


class InvalidBallotError(InvalidDataError, code="invalid-ballot"):
    """A teacher returned something other than one class index, or an abstention, per row."""


class ConfigError(TutelageError, code="config"):
    """A configuration or a command has a missing, unknown or wrongly typed entry."""


class TeacherTrainingError(TutelageError, code="teacher-training"):
    """All teachers failed on their rows, or a process that trains teachers died or ran out of memory.

    The messages of teachers are withheld because they may quote rows.
    """


class UnsupportedEventError(TutelageError, TypeError, code="unsupported-event"):
    """No accounting rule covers this event, so nothing is claimed about its cost."""


class NothingToGainError(TutelageError, code="nothing-to-gain"):
    """The public votes support no epsilon below the worst case. Publish the worst case."""


class LedgerError(TutelageError, code="ledger"):
    """A ledger refused an operation. Its earlier entries are unchanged."""


class BudgetExceededError(LedgerError, code="budget-exceeded"):
    """The budget does not allow this release. Nothing was spent and no noise was drawn. Ask fewer queries or add noise.

    Attributes
    ----------
    requested : int
        Number of queries asked.
    fitting : int
        Number of such queries that the budget still allows.
    """

    def __init__(self, message: str, *, requested: int, fitting: int) -> None:
        super().__init__(message)
        self.requested = requested
        self.fitting = fitting


class PublicationsExhaustedError(LedgerError, code="publications-exhausted"):
    """The published epsilons of one ledger would need more δ than the ledger has."""


class LateProposalError(LedgerError, code="late-proposal"):
    """A proposal came after a label of the same ledger, so votes may have shaped it. Publish the worst-case epsilon."""


class LedgerMismatchError(LedgerError, code="ledger-mismatch"):
    """The ledger belongs to another data set, privacy unit or budget than the release. Name the right ledger."""


class LedgerTamperedError(LedgerError, code="ledger-tampered"):
    """The ledger's file was damaged, edited, cut off or rolled back. Restore a copy that verifies with a head."""


class LedgerLockedError(LedgerError, code="ledger-locked"):
    """Another process has been writing to the ledger for over a minute. Wait for it, and try again."""


class LedgerStorageError(LedgerError, code="ledger-storage"):
    """The ledger file is missing, not a ledger, of a later format, read-only, on a network disk, or cannot grow."""


class LedgerMissingError(LedgerStorageError, code="ledger-missing"):
    """There is no file, or an empty one, which a process leaves that is killed while it makes a ledger."""


class LedgerOvertakenError(LedgerStorageError, code="ledger-overtaken"):
    """Another process made the file of this ledger first. Nothing was spent: open it."""


class FederationError(TutelageError, code="federation"):
    """The protocol of a consortium cannot continue. No vote was opened."""


class ForgedMessageError(FederationError, code="forged-message"):
    """A message is not what its sender signed for this recipient, consortium and batch."""


class StaleBatchError(FederationError, code="stale-batch"):
    """A batch is finished, of another consortium, or not the one whose computation was started."""


class QuorumError(FederationError, code="quorum"):
    """Too few hospitals answered, so the noise would be too small. Nothing was opened."""


class PartyLostError(FederationError, code="party-lost"):
    """A computing party failed or stopped answering. Nothing was opened. Try again with the same shares."""


class BudgetContinuedWarning(UserWarning):
    """A fit continued a budget from which earlier fits had spent."""


class RepeatedFitWarning(UserWarning):
    """Earlier fits in this process had no ledger either. If they used the same people, their costs add up."""


class PreflightWarning(UserWarning):
    """A check of the rows before the first release found something for their owner to look at."""

    def sentence(self, naming: _Naming = in_python) -> str:
        """Return the warning in the words of an interface."""
        return _for_owner(_in_words(str(self.args[0]), _OF_FIT, naming))

    def __str__(self) -> str:
        return self.sentence()


class UndeclaredClassesWarning(PreflightWarning):
    """The class values were read from the private labels, which ε does not count."""


class ExposedFileWarning(UserWarning):
    """Other accounts of this machine may read a private file, such as a ledger with its key."""


class FewPublicRowsWarning(UserWarning):
    """There are so few public rows that a student learns little for its budget."""


class MuchNoiseWarning(UserWarning):
    """The noise that an ε requires is larger than the number of teachers, so that many labels are wrong."""


class OneClassWarning(UserWarning):
    """All released labels are of the same class, so the student always predicts this class."""


class TeacherLostWarning(UserWarning):
    """A teacher failed on its rows, so the teacher abstains."""


class AsPrintedWarning(UserWarning):
    """An equation of a paper is used as printed, although it does not do what the paper claims."""


class NotPublishableError(TutelageError, TypeError, code="not-publishable"):
    """A value that depends on the private votes must not be printed, stored or put on a card."""
