"""Features have names, and scikit-learn's `set_output` makes frames of them without changing a label."""

from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.pipeline import make_pipeline

from conftest import FITS_AGAIN
from test_named_rows import PRIVATE, PUBLIC, classifier
from tutelage.features import PublicColumns, PublicKernel, PublicPCA, PublicRows, PublicScaling, PublicSteps, UnitBall

pytestmark = [FITS_AGAIN, pytest.mark.rest]
LABELS = PRIVATE["ill"].to_numpy()
ROWS = np.random.default_rng(0).normal(size=(60, 9))
NAMES = [f"column {number}" for number in range(9)]
MAPS: dict[str, Any] = {
    "axes": PublicPCA.learn(PublicRows(ROWS, "made up"), 3),
    "scales": PublicScaling.learn(PublicRows(ROWS, "made up")),
    "kernel": PublicKernel.learn(PublicRows(ROWS, "made up"), 20),
    "steps": PublicSteps.learn(PublicRows(np.round(ROWS), "made up"), 5),
    "ball": UnitBall(1.0),
}


@pytest.mark.parametrize("name", MAPS)
def test_every_map_names_each_of_its_features_once(name):
    found = list(MAPS[name].get_feature_names_out(NAMES))
    assert len(set(found)) == len(found) == MAPS[name].transform(ROWS).shape[1]


def test_maps_that_make_frames_change_no_ballot():
    columns = PublicColumns.learn(PUBLIC)
    steps = PublicSteps.learn(PublicRows(columns.transform(PUBLIC), "public"), len(columns.numbers))
    plain, framed = make_pipeline(columns, steps), make_pipeline(clone(columns), clone(steps))
    framed.set_output(transform="pandas")
    one, other = (classifier(features=one).fit(PRIVATE, LABELS, X_public=PUBLIC) for one in (plain, framed))
    assert np.array_equal(one.votes_.counts, other.votes_.counts)
    assert np.array_equal(one.predict(PRIVATE), other.predict(PRIVATE))
