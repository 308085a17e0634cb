from sklearn.tree import DecisionTreeClassifier
from sklearn.utils.estimator_checks import parametrize_with_checks

from tutelage import LNMax, PATEClassifier


@parametrize_with_checks(
    [PATEClassifier(DecisionTreeClassifier(), n_teachers=3, mechanism=LNMax(0.01), public_fraction=0.5, random_state=0)]
)
def test_scikit_learn_contract(estimator, check):
    check(estimator)
