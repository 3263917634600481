"""FederatedDAG among scikit-learn's own: its checks, clones, pipelines' parameters, cross-validated likelihoods."""

from typing import Any

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("sklearn")

from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.utils.estimator_checks import parametrize_with_checks

import dagora
from dagora.errors import InputError
from dagora.estimator import FederatedDAG


@parametrize_with_checks([FederatedDAG(method="covariance")])  # type: ignore[untyped-decorator]
def test_scikit_learns_checks(estimator: Any, check: Any) -> None:
    check(estimator)


def test_it_learns_what_learn_learns() -> None:
    _, sites = dagora.simulate(d=6, n=300, sites=3, seed=0)
    found = FederatedDAG(aggregation="masked", lam=0.05).fit(sites)
    expected = dagora.learn(sites, aggregation="masked", lam=0.05, refit=True)
    assert found.weights_.tobytes() == expected.weights.tobytes()
    assert (found.adjacency_ == expected.adjacency).all()
    assert found.result_.settings == expected.settings
    named = FederatedDAG().fit({"north": pd.DataFrame(sites[0], columns=list("abcdef"))})
    assert named.result_.sites == ("north",)
    assert named.result_.names == tuple("abcdef")
    one = FederatedDAG().fit(pd.DataFrame(sites[0], columns=list("abcdef")))
    assert one.feature_names_in_.tolist() == list("abcdef")


def test_clones_have_the_same_parameters() -> None:
    one = FederatedDAG(method="covariance", learner="ges", penalty=2.0, score_function=None)
    other = clone(one)
    assert other.get_params() == one.get_params()
    assert other.set_params(penalty=1.0).penalty == 1.0
    assert one.penalty == 2.0


def test_parameters_are_those_of_learn() -> None:
    import inspect

    known = set(inspect.signature(dagora.learn).parameters)
    assert {"score" if name == "score_function" else name for name in FederatedDAG().get_params()} <= known


def test_cross_validation_prefers_the_true_model_to_none() -> None:
    _, sites = dagora.simulate(d=5, edges=6, n=400, sites=1, seed=1)
    rows = sites[0]
    kept = cross_val_score(FederatedDAG(method="covariance"), rows, cv=4).mean()
    none = cross_val_score(FederatedDAG(method="covariance", learner="notears", lam=1e3), rows, cv=4).mean()
    assert kept > none + 0.5
    search = GridSearchCV(FederatedDAG(method="covariance"), {"penalty": [0.5, 1e6]}, cv=3).fit(rows)
    assert search.best_params_ == {"penalty": 0.5}


def test_scores_are_mean_likelihoods() -> None:
    _, sites = dagora.simulate(d=4, n=200, sites=2, seed=2)
    found = FederatedDAG().fit(sites)
    assert found.network_ is not None
    assert found.score(sites[0]) == pytest.approx(found.network_.log_likelihood(sites[0]) / len(sites[0]))
    with pytest.raises(InputError, match="refit=True"):
        FederatedDAG(refit=False).fit(sites).score(sites[0])
    curved = FederatedDAG(model="additive", method="covariance").fit(sites)
    assert curved.network_ is None
    assert np.isfinite(curved.weights_).all()
