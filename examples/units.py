"""Sites whose columns are in all kinds of units: one total, then a search that units cannot mislead."""

import numpy as np

import dagora

truth, sites = dagora.simulate(d=12, edges=18, n=2000, sites=5, seed=1, noise="gaussian-unequal")
units = 10.0 ** np.array([3, -3, 0, 2, -2, 1, -1, 0, 3, -3, 2, 0])
in_units = [rows * units for rows in sites]

result = dagora.learn(in_units, method="covariance")  # learner="boss"
print("boss:   ", dagora.evaluate(truth, result)["cpdag_shd"], "wrong edges of the class, in", result.rounds, "round")
print("undirected, for either way fits:", result.undirected())
same = (dagora.learn(sites, method="covariance").cpdag == result.cpdag).all()
print("the same class in the original units:", bool(same))

least_squares = dagora.learn(in_units, method="covariance", learner="notears")
print("notears:", dagora.evaluate(truth, least_squares)["cpdag_shd"], "wrong edges of the class")
