"""A scikit-learn estimator over `learn`, for pipelines of notebooks: get_params, clone, cross-validated likelihoods."""

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy.sparse import issparse

from dagora.arrays import FloatArray, IntArray
from dagora.data.tables import Source
from dagora.errors import InputError
from dagora.knowledge import Knowledge
from dagora.learn import learn
from dagora.result import Result

try:
    from sklearn.base import BaseEstimator
    from sklearn.utils.validation import check_is_fitted, validate_data
except ImportError:
    raise InputError("FederatedDAG needs scikit-learn 1.6 or newer: pip install 'dagora[estimator]'") from None


class FederatedDAG(BaseEstimator):  # type: ignore[misc]
    """Learn a network from several sites; parameters are those of `dagora.learn`, None for its defaults.

    fit takes what `learn` takes, a list of sites or a mapping of them by name; a single array or data frame is one
    site.  Afterwards: `result_` (with names), `weights_`, `adjacency_`, and `network_` where parameters were fitted
    (model "linear", unless refit=False).

    >>> truth, sites = dagora.simulate(d=4, n=400, sites=4, seed=0)
    >>> estimator = dagora.FederatedDAG(method="covariance").fit(sites)
    >>> estimator.adjacency_.shape, estimator.score(sites[0]) > estimator.score(sites[0] + 1.0)
    ((4, 4), True)
    """

    weights_: FloatArray
    adjacency_: IntArray

    def __init__(
        self,
        *,
        model: str = "linear",
        method: str = "admm",
        preset: str = "default",
        aggregation: str = "plain",
        learner: str | None = None,
        lam: float | str | None = None,
        threshold: float | str | None = None,
        score_function: str | None = None,
        penalty: float | None = None,
        alpha: float | None = None,
        polish: bool | None = None,
        standardize: bool | None = None,
        refit: bool = True,
        seed: int | None = None,
        bootstrap: int | None = None,
        knowledge: Knowledge | str | os.PathLike[str] | None = None,
    ) -> None:
        self.model = model
        self.method = method
        self.preset = preset
        self.aggregation = aggregation
        self.learner = learner
        self.lam = lam
        self.threshold = threshold
        self.score_function = score_function
        self.penalty = penalty
        self.alpha = alpha
        self.polish = polish
        self.standardize = standardize
        self.refit = refit
        self.seed = seed
        self.bootstrap = bootstrap
        self.knowledge = knowledge

    def fit(self, X: Source | Sequence[Source] | Mapping[str, Source], y: object = None) -> "FederatedDAG":
        """Learn from the sites; y is not looked at."""
        asked = self.get_params()
        asked["score"] = asked.pop("score_function")
        asked["refit"] = asked["refit"] if self.model == "linear" else None
        several = isinstance(X, Mapping | list | tuple) and not _is_rows(X)
        sites: Any = X if several else [self._one_site(X)]
        self.result_: Result = learn(sites, **asked)
        self.weights_, self.adjacency_ = self.result_.weights, self.result_.adjacency
        self.network_ = self.result_.network
        self.n_features_in_ = len(self.result_.names)
        if hasattr(X, "columns"):
            self.feature_names_in_ = np.array(self.result_.names, dtype=object)
        return self

    def score(self, X: Any, y: object = None) -> float:
        """Mean log-likelihood of rows (an array or a data frame), in nats: for cross-validation."""
        check_is_fitted(self)
        if self.network_ is None:
            raise InputError("there are no parameters to score rows by; fit model 'linear' with refit=True")
        rows = X if hasattr(X, "columns") else validate_data(self, X, reset=False, dtype=np.float64)
        return float(self.network_.log_likelihood(rows) / len(rows))

    def _one_site(self, X: Any) -> Any:
        """Tables are read by `learn`; what else scikit-learn lets pass for rows becomes an array."""
        if hasattr(X, "__arrow_c_stream__"):
            return X
        return validate_data(self, X, dtype=np.float64, ensure_min_samples=2, ensure_min_features=2)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = False
        return tags


def _is_rows(X: Any) -> bool:
    """A list of lists of numbers is rows, as elsewhere in scikit-learn; some sparse matrices are mappings."""
    return issparse(X) or (isinstance(X, list | tuple) and len(X) > 0 and isinstance(X[0], list | tuple))
