import numpy as np
import pytest
import torch

from tutelage.exceptions import InvalidDataError, InvalidParameterError
from tutelage_reproductions.distillation import DistilledStudent

X, Y = np.arange(12.0).reshape(6, 2), [0, 1] * 3


@pytest.mark.parametrize(
    ("rows", "complaint"),
    [(np.full((6, 2), np.nan), "must hold finite numbers"), (np.zeros(6), "2D array")],
)
def test_a_distilled_student_refuses_rows_that_cannot_be_learned_from(rows, complaint):
    student = DistilledStudent(lambda n_classes: torch.nn.Linear(2, n_classes), steps=1)
    with pytest.raises(InvalidDataError, match=complaint):
        student.fit(rows, np.eye(2)[Y])
    with pytest.raises(InvalidDataError, match=complaint):
        student.fit(X, np.eye(2)[Y]).predict_proba(rows)


def test_a_distilled_student_leaves_the_layers_of_its_factory_alone():
    kept = torch.nn.Linear(2, 2)
    before = kept.weight.detach().clone()
    DistilledStudent(lambda n_classes: kept, steps=5).fit(X, np.eye(2)[Y])
    assert torch.equal(kept.weight, before)
    with pytest.raises(
        InvalidParameterError, match="`factory` of DistilledStudent must be a function"
    ):
        DistilledStudent(kept, steps=5).fit(X, np.eye(2)[Y])
