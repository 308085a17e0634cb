"""Private Aggregation of Teacher Ensembles: teachers vote, noise protects, a student learns, the cost is proved.

Names are loaded on first use, so that ``import tutelage`` stays light.
"""

import logging
from typing import TYPE_CHECKING

from tutelage._internal import on_first_use

if TYPE_CHECKING:
    from tutelage.ballots import VoteHistogram as VoteHistogram
    from tutelage.estimator import PATEClassifier as PATEClassifier
    from tutelage.estimator import PATERegressor as PATERegressor
    from tutelage.exceptions import TutelageError as TutelageError
    from tutelage.labeling import LabelingSession as LabelingSession
    from tutelage.ledger import Ledger as Ledger
    from tutelage.mechanisms import ConfidentGNMax as ConfidentGNMax
    from tutelage.mechanisms import ExponentialMax as ExponentialMax
    from tutelage.mechanisms import GNMax as GNMax
    from tutelage.mechanisms import InteractiveGNMax as InteractiveGNMax
    from tutelage.mechanisms import LNMax as LNMax
    from tutelage.mechanisms import PermuteAndFlip as PermuteAndFlip
    from tutelage.mechanisms import Release as Release
    from tutelage.noise import SimulationNoise as SimulationNoise
    from tutelage.noise import SystemNoise as SystemNoise
    from tutelage.partition import Shards as Shards
    from tutelage.people.tiers import Tiers as Tiers
    from tutelage.privacy import PrivateEpsilon as PrivateEpsilon
    from tutelage.privacy import PublicEpsilon as PublicEpsilon

__version__ = "0.1.0"

_HOME = {
    "ConfidentGNMax": "mechanisms",
    "ExponentialMax": "mechanisms",
    "GNMax": "mechanisms",
    "InteractiveGNMax": "mechanisms",
    "LNMax": "mechanisms",
    "LabelingSession": "labeling",
    "Ledger": "ledger",
    "PATEClassifier": "estimator",
    "PATERegressor": "estimator",
    "PermuteAndFlip": "mechanisms",
    "PrivateEpsilon": "privacy",
    "PublicEpsilon": "privacy",
    "Release": "mechanisms",
    "Shards": "partition",
    "SimulationNoise": "noise",
    "SystemNoise": "noise",
    "Tiers": "people.tiers",
    "TutelageError": "exceptions",
    "VoteHistogram": "ballots",
}
__all__ = sorted([*_HOME, "__version__"])  # pyright: ignore[reportUnsupportedDunderAll]

logging.getLogger(__name__).addHandler(logging.NullHandler())

__getattr__, __dir__ = on_first_use(__name__, _HOME)
