"""Everything tutelage raises on purpose.

    TutelageError
    ├── InvalidParameterError      a parameter is out of range            (also ValueError)
    ├── InvalidDataError           rows, labels or a file cannot be used  (also ValueError)
    │   ├── OverlappingShardsError one entity would reach two teachers
    │   └── InvalidBallotError     a teacher's answer is no vote
    ├── ConfigError                a run configuration is wrong
    ├── TeacherTrainingError       an estimator failed on a shard
    ├── UnsupportedEventError      no theorem here covers this release    (also TypeError)
    ├── NothingToGainError         no epsilon below the data-independent one can be proposed
    ├── LedgerError                a ledger does not do what was asked of it
    │   ├── BudgetExceededError    the release would pass the budget; nothing was spent or drawn
    │   ├── PublicationsExhaustedError  the ledger's δ is taken by other published epsilons
    │   ├── LateProposalError      a proposal comes after a label, which may have shaped it
    │   ├── LedgerMismatchError    it belongs to another data set, unit or budget
    │   ├── LedgerTamperedError    its file was damaged, edited or rolled back
    │   ├── LedgerLockedError      another process holds it for too long
    │   └── LedgerStorageError     its file is missing, no ledger, read-only or cannot grow
    ├── FederationError            a consortium's protocol cannot go on
    │   ├── ForgedMessageError     a message is not what its sender signed for this recipient and batch
    │   ├── StaleBatchError        a batch is closed, another consortium's, or not the one begun
    │   ├── QuorumError            too few entities answered; nothing was opened
    │   └── PartyLostError         a computing party failed or fell silent; nothing was opened
    └── NotPublishableError        a private value met a public door      (also TypeError)

    BudgetContinuedWarning         a fit continues a budget               (a UserWarning)
    RepeatedFitWarning             fits without a ledger spend together   (a UserWarning)
    OneClassWarning                all released labels are of one class   (a UserWarning)
    TeacherLostWarning             a teacher could not be trained         (a UserWarning)
    AsPrintedWarning               a paper's equation is used as printed, though it is wrong  (a UserWarning)

An error is an output: messages name parameters, columns and files, never a count, a private label or a row.
"""


class TutelageError(Exception):
    """Base of every error that tutelage raises on purpose."""


class InvalidParameterError(TutelageError, ValueError):
    """A parameter is outside its documented range."""


class InvalidDataError(TutelageError, ValueError):
    """Rows, labels, votes or a file cannot be used as given."""


class OverlappingShardsError(InvalidDataError):
    """One entity's rows would reach more than one teacher, which breaks the sensitivity claim."""


class InvalidBallotError(InvalidDataError):
    """A teacher's answer is not one class index, or abstention, per row."""


class ConfigError(TutelageError):
    """A run configuration has a missing, unknown or ill-typed entry."""


class TeacherTrainingError(TutelageError):
    """The teachers' estimator raised on a shard; its own message is withheld because it may quote rows."""


class UnsupportedEventError(TutelageError, TypeError):
    """No accounting rule here covers this event; nothing is claimed about it."""


class NothingToGainError(TutelageError):
    """Votes like the public ones given bear no smaller epsilon than the data-independent one, which stands."""


class LedgerError(TutelageError):
    """A ledger does not do what was asked of it; whatever it had recorded stays recorded."""


class BudgetExceededError(LedgerError):
    """A release would pass the budget. Nothing was spent and no noise was drawn.

    Attributes
    ----------
    requested : int
        Queries that were to be answered.
    fitting : int
        Queries like them that the budget still allows.
    """

    def __init__(self, message: str, *, requested: int, fitting: int) -> None:
        super().__init__(message)
        self.requested = requested
        self.fitting = fitting


class PublicationsExhaustedError(LedgerError):
    """The δ of the epsilons published through one ledger would pass the ledger's own."""


class LateProposalError(LedgerError):
    """A proposal was made after a label of the same ledger, so that private votes may have shaped it."""


class LedgerMismatchError(LedgerError):
    """The ledger belongs to another data set, unit of privacy or budget than the release."""


class LedgerTamperedError(LedgerError):
    """The ledger's file was damaged, edited, cut off or replaced by an older copy."""


class LedgerLockedError(LedgerError):
    """Another process has been writing to the ledger for longer than one waits."""


class LedgerStorageError(LedgerError):
    """The ledger's file cannot be used: missing, no ledger, of a later format, read-only, or without room to grow."""


class FederationError(TutelageError):
    """A consortium's protocol cannot go on; no vote was opened."""


class ForgedMessageError(FederationError):
    """A message is not what its claimed sender signed for this recipient, consortium and batch."""


class StaleBatchError(FederationError):
    """A batch is closed already, of another consortium, or not the one whose computation was begun."""


class QuorumError(FederationError):
    """Fewer entities answered than the noise was sized for; nothing was opened."""


class PartyLostError(FederationError):
    """A computing party failed, fell silent or was no peer; nothing was opened. The same shares may be tried again."""


class BudgetContinuedWarning(UserWarning):
    """A fit went on spending a budget that earlier ones had spent from."""


class RepeatedFitWarning(UserWarning):
    """A fit without a ledger used rows, or an estimator, of earlier ones; what they spent adds up."""


class OneClassWarning(UserWarning):
    """Every released label is of the same class, which the student will therefore always answer."""


class TeacherLostWarning(UserWarning):
    """A teacher's training killed its process whenever it was tried, so that it abstains."""


class AsPrintedWarning(UserWarning):
    """An equation of a paper is used as it is printed, though it does not do what the paper says of it."""


class NotPublishableError(TutelageError, TypeError):
    """A value that depends on the private votes was about to be printed, stored or put in a card."""
