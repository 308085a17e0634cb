from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array, issparse

from blobs import groups
from tutelage.exceptions import InvalidParameterError
from tutelage.students.propagation import LabelPropagationStudent, _neighbor_graph, _Propagation


def fitted(X: Any, labels: Any, **settings: Any) -> LabelPropagationStudent:
    return LabelPropagationStudent(**{"random_state": 0, **settings}).fit(X, labels)


def test_the_graph_joins_each_row_to_its_nearest_others():
    X = np.random.default_rng(0).random((40, 3))
    graph = _neighbor_graph(X, 4)
    distances = np.linalg.norm(X[:, np.newaxis] - X, axis=2)
    np.fill_diagonal(distances, np.inf)
    reach = np.sort(distances, axis=1)[:, 3:4]
    given = np.where(distances <= reach, np.exp(-((distances / reach) ** 2)), 0)
    assert issparse(graph)
    assert np.allclose(graph.toarray(), (given + given.T) / 2)


@given(seed=st.integers(0, 1000), alpha=st.floats(0, 0.9999), n_rows=st.integers(2, 30))
@settings(max_examples=20)
def test_a_field_is_the_solution_of_its_equation(seed, alpha, n_rows):
    generator = np.random.default_rng(seed)
    W = _neighbor_graph(generator.random((n_rows, 2)), 4).toarray()
    rows = generator.permutation(n_rows)[: max(1, n_rows // 2)]
    sources = generator.random((len(rows), 3))
    field = _Propagation(csr_array(W), alpha).spread(rows, sources)
    degrees = W.sum(axis=1)
    centred = -np.outer(degrees, sources.sum(axis=0)) / degrees.sum()
    centred[rows] += sources
    exact = np.linalg.solve(np.diag(degrees) - alpha * W, centred)
    assert np.abs(field - exact).max() < 0.05 * np.abs(exact).max() + 1e-6


@pytest.mark.parametrize("right", [1.0, 0.6])
def test_wrong_labels_are_outvoted_found_and_counted(right):
    X, y = groups([80] * 5)
    labels, asked = np.full(400, -1), np.random.default_rng(0).permutation(400)[:75]
    labels[asked] = y[asked]
    wrong = asked[: round((1 - right) * 75)]
    labels[wrong] = (y[wrong] + np.arange(len(wrong)) % 4 + 1) % 5  # any other class
    student = fitted(X, labels)
    assert np.mean(student.propagated_ == y) == 1.0
    assert np.mean(student.predict(X) == y) == 1.0
    assert abs(student.label_noise_ - (1 - right)) < 0.08
    assert np.array_equal(np.isnan(student.trusts_), labels == -1)
    assert np.array_equal(student.trusts_[asked] > 0.5, labels[asked] == y[asked])


def test_a_label_has_no_say_in_its_own_trial():
    X, y = groups([30, 30])
    labels = np.where(np.arange(60) % 3 == 0, y, -1)
    labels[3] = 1  # of class 0
    student = fitted(X, labels)
    assert student.trusts_[3] < 0.2
    assert np.nanmin(np.delete(student.trusts_, 3)) > 0.8


@pytest.mark.parametrize(("name", "value"), [
    ("n_neighbors", 0), ("alpha", 1.0), ("alpha", ()), ("alpha", (0.5, 2.0)), ("random_state", -1),
])  # fmt: skip
def test_settings_out_of_range_are_refused(name, value):
    with pytest.raises(InvalidParameterError, match=f"`{name}` of LabelPropagationStudent"):
        fitted(np.eye(3), [0, 1, -1], **{name: value})
