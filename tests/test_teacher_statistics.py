import copy
import logging
import pickle

import numpy as np
import pytest

from tutelage._internal.typing import ABSTAIN
from tutelage.exceptions import InvalidDataError, NotPublishableError
from tutelage.teachers import PrivateStatistics

BALLOTS = np.array(
    [[0, 1, 2], [0, 2, 2], [1, 2, ABSTAIN], [0, ABSTAIN, ABSTAIN], [ABSTAIN] * 3], dtype=np.int16
)
LABELS = np.array([0, 1, 2])


def test_accuracies_count_what_was_voted_on_and_gaps_are_over_all_teachers():
    found = PrivateStatistics(BALLOTS, LABELS, 3).reveal()
    assert found.accuracies[:4].tolist() == [1.0, 2 / 3, 0.0, 1.0]
    assert np.isnan(found.accuracies[4])
    assert found.plurality == pytest.approx(2 / 3)
    assert found.gaps.tolist() == [2 / 5, 1 / 5, 2 / 5]


def test_nothing_is_shown_unless_it_is_revealed(caplog):
    shut = PrivateStatistics(BALLOTS, LABELS, 3)
    logging.getLogger("somebody").warning("statistics: %s", shut)
    for shown in (repr([shut]), f"{shut:>9}", caplog.text):
        assert "hidden" in shown
        assert "0.6" not in shown
        assert "[0" not in shown
    for leave in (pickle.dumps, copy.deepcopy):
        with pytest.raises(NotPublishableError, match="not pickled"):
            leave(shut)


@pytest.mark.parametrize("labels", [LABELS[:2], LABELS[None], LABELS.astype(str), LABELS * 1.0])
def test_labels_that_do_not_fit_are_refused(labels):
    with pytest.raises(
        InvalidDataError, match=r"(labels of shape \(rows,\))|(class indices, which are integers)"
    ):
        PrivateStatistics(BALLOTS, labels, 3)
