"""The paper's experiments: a figure is a config (configs/), a method a file (methods/); runner.py runs them."""
