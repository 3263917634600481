"""The public surface: changing it is a decision, so it is written down twice."""

import dagora

PUBLIC = {
    "ConvergenceWarning",
    "DagoraError",
    "FederatedDAG",
    "GaussianNetwork",
    "InputError",
    "Knowledge",
    "MessageError",
    "NumericalError",
    "Result",
    "ScaleWarning",
    "Truth",
    "__version__",
    "evaluate",
    "learn",
    "load_sachs",
    "read_graph",
    "select_lags",
    "simulate",
    "simulate_series",
}


def test_public_names_are_these() -> None:
    assert set(dagora.__all__) == PUBLIC
    assert len(dagora.__all__) == len(PUBLIC)


def test_public_names_are_there() -> None:
    assert all(hasattr(dagora, name) for name in PUBLIC)


def test_every_error_is_caught_as_one() -> None:
    for error in (dagora.InputError, dagora.MessageError, dagora.NumericalError):
        assert issubclass(error, dagora.DagoraError)
