"""Attacks that show what a run's messages reveal, run by an auditor who holds all data and so can check them."""
