"""Examples in the docstrings of public names are there, and true."""

import doctest
import inspect

import numpy as np
import pytest

import dagora


def shown() -> list[str]:
    """All public names that can be called, but errors, and what only comes out of others."""
    things = {name: getattr(dagora, name) for name in dagora.__all__ if name != "Truth"}
    return [
        name
        for name, thing in things.items()
        if callable(thing) and not (inspect.isclass(thing) and issubclass(thing, Exception))
    ]


@pytest.mark.parametrize("name", shown())
def test_the_example_of_a_public_name_is_true(name: str) -> None:
    known = {"dagora": dagora, "np": np}  # all that a reader has to have imported
    docstring = inspect.getdoc(getattr(dagora, name)) or ""
    example = doctest.DocTestParser().get_doctest(docstring, known, name, None, None)
    assert example.examples, "there is none"
    failures: list[str] = []
    doctest.DocTestRunner().run(example, out=failures.append)
    assert not failures, "".join(failures)
