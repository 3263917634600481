"""Accuracy, speed and scale, measured: `python -m benchmarks NAME` prints a table and keeps it under results/."""
