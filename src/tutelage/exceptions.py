"""Everything tutelage raises on purpose.

    TutelageError
    ├── InvalidParameterError      a parameter is out of range            (also ValueError)
    ├── InvalidDataError           rows, labels or a file cannot be used  (also ValueError)
    │   └── OverlappingShardsError one entity would reach two teachers
    ├── ConfigError                a run configuration is wrong
    ├── TeacherTrainingError       an estimator failed on a shard
    ├── UnsupportedEventError      no theorem here covers this release    (also TypeError)
    └── NotPublishableError        a private value met a public door      (also TypeError)

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


class ConfigError(TutelageError):
    """A run configuration has a missing, unknown or ill-typed entry."""


class TeacherTrainingError(TutelageError):
    """The teachers' estimator raised on a shard; its own message is withheld because it may quote rows."""


class UnsupportedEventError(TutelageError, TypeError):
    """No accounting rule here covers this event; nothing is claimed about it."""


class NotPublishableError(TutelageError, TypeError):
    """A value that depends on the private votes was about to be printed, stored or put in a card."""
