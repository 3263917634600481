"""Levenberg-Marquardt with an l1 penalty: one step at a time, for whoever can evaluate the loss only elsewhere.

    min over x of  F(x) = f(x) + sum_i lam_i |x_i| + sum_i ridge_i x_i^2 / 2,      f half a mean of squares

Around the best x so far, f is taken for a quadratic with its gradient and the Hessian J'J + C.  J'J is that of the
start.  C learns from how the gradient changed along the steps taken what has become of J'J since, and what it leaves
out: how the residuals bend (the structured secant of Dennis, Gay and Welsch 1981).  So J'J, the largest of what has to
be found elsewhere, is asked for once, or never if another descent ended nearby.

The model is made steeper by a damping, in units of J'J's mean diagonal, until it is convex and its promises hold.  Its
minimum with the penalties is a lasso; it is the next x to try.  If F is lower there, that is the new best x, and the
damping falls by how well the model foretold the gain (Nielsen 1999); else the damping grows and the model stays.
"""

from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg.lapack import dpotrf

from dagora.arrays import BoolArray, FloatArray
from dagora.solvers.lasso import lasso

_DAMPING = 1e-2  # at first
_LEAST, _MOST = 1e-8, 1e8
_ACROSS = 1e-3  # cosine below which a move tells too little of the curvature along it: C is divided by its square


@dataclass(frozen=True)
class Penalties:
    """Prices of each coordinate."""

    lam: FloatArray
    ridge: FloatArray

    def at(self, x: FloatArray) -> float:
        """What x costs."""
        return float(self.lam @ np.abs(x) + 0.5 * self.ridge @ (x * x))


@dataclass(frozen=True)
class Seen:
    """f at a point: its value and gradient, which coordinates may move (all others are zero); at first J'J of these."""

    value: float
    gradient: FloatArray
    moving: BoolArray
    JJ: FloatArray | None = None


@dataclass(frozen=True)
class Quadratic:
    """A model of f: gradient, and J'J + C for the Hessian of the coordinates that may move."""

    gradient: FloatArray
    moving: BoolArray
    JJ: FloatArray
    C: FloatArray

    @classmethod
    def at(cls, seen: Seen) -> "Quadratic":
        """Nothing is known of C yet."""
        if seen.JJ is None:
            raise ValueError("the first point needs its J'J")
        return cls(seen.gradient, seen.moving, seen.JJ, np.zeros_like(seen.JJ))

    def elsewhere(self, seen: Seen) -> "Quadratic":
        """The model with another gradient, perhaps of other coordinates."""
        JJ, C = self._of(self.JJ, seen.moving), self._of(self.C, seen.moving)
        new = ~self.moving[seen.moving]
        JJ[new, new] = np.diag(self.JJ).mean()  # a guess, for C to correct
        return Quadratic(seen.gradient, seen.moving, JJ, C)

    def after(self, move: FloatArray, seen: Seen) -> "Quadratic":
        """The model after a move, with what it taught."""
        there = self.elsewhere(seen)
        JJ, C = there.JJ, there.C
        s, y = move[seen.moving], (seen.gradient - self.gradient)[seen.moving]
        along = float(y @ s)
        if along > _ACROSS * float(np.linalg.norm(y) * np.linalg.norm(s)):
            missing = y - JJ @ s
            bend = float(s @ C @ s)
            if bend != 0.0:  # what was learned farther off counts for no more than what is seen here
                C = C * min(1.0, abs(float(s @ missing)) / abs(bend))
            rest = missing - C @ s
            C = C + (np.outer(rest, y) + np.outer(y, rest)) / along - float(s @ rest) * np.outer(y, y) / along**2
        return replace(there, C=C)

    def _of(self, matrix: FloatArray, moving: BoolArray) -> FloatArray:
        """A matrix of the coordinates that may move, for others: zero where nothing is known."""
        common = moving & self.moving
        here, there = np.flatnonzero(common[moving]), np.flatnonzero(common[self.moving])
        found = np.zeros((int(moving.sum()),) * 2)
        found[np.ix_(here, here)] = matrix[np.ix_(there, there)]
        return found


@dataclass(frozen=True)
class Descent:
    """The best x so far with F there and the model around it, and the x to try next."""

    x: FloatArray
    trial: FloatArray
    value: float = np.inf
    loss: float = np.inf  # f's part in it
    model: Quadratic | None = None
    damping: float = _DAMPING
    growth: float = 2.0  # of the damping, at the next failure
    foretold: float = np.inf
    ended: bool = False
    prior: Quadratic | None = None  # a model from nearby to start with

    @classmethod
    def at(cls, x: FloatArray, prior: Quadratic | None = None) -> "Descent":
        """Start by evaluating x."""
        return cls(x, x, prior=prior)

    @property
    def lacks_model(self) -> bool:
        """Whether the next point needs its J'J."""
        return self.model is None and self.prior is None

    def observe(self, seen: Seen, penalties: Penalties, tolerance: float) -> "Descent":
        """Take in what f is at the trial; ends with a gain below the tolerance, relative to F."""
        value = seen.value + penalties.at(self.trial)
        gain = self.value - value
        if not gain >= 0.0:
            if self.damping >= _MOST:
                return replace(self, trial=self.x, ended=True)
            worse = replace(self, damping=self.damping * self.growth, growth=2.0 * self.growth)
            return worse._step(penalties)
        if self.model is None:
            model = Quadratic.at(seen) if self.prior is None else self.prior.elsewhere(seen)
            return Descent(self.trial, self.trial, value, seen.value, model)._step(penalties)
        damping = max(self.damping * max(0.2, 1.0 - (2.0 * gain / self.foretold - 1.0) ** 3), _LEAST)
        model = self.model.after(self.trial - self.x, seen)
        better = Descent(self.trial, self.trial, value, seen.value, model, damping)
        return replace(better, ended=True) if gain <= tolerance * value else better._step(penalties)

    def _step(self, penalties: Penalties) -> "Descent":
        """The minimum of the damped model."""
        assert self.model is not None
        moving, H = self.model.moving, self.model.JJ + self.model.C
        x, gradient = self.x[moving], self.model.gradient[moving]
        own = Penalties(penalties.lam[moving], penalties.ridge[moving])
        unit = float(np.diag(self.model.JJ).mean())
        shift = self.damping * unit + _lack(H + np.diag(own.ridge))
        damped = H + shift * np.eye(len(H))
        system = damped + np.diag(own.ridge)
        centre = np.asarray(np.linalg.solve(system, damped @ x - gradient), dtype=np.float64)
        y = lasso(system, centre[:, None], x[:, None], np.ones((len(x), 1), dtype=bool), own.lam)[0][:, 0]
        trial = np.zeros_like(self.x)
        trial[moving] = y
        move = y - x
        foretold = own.at(x) - own.at(y) - float(gradient @ move + 0.5 * move @ H @ move)
        return replace(self, trial=trial, foretold=max(foretold, np.finfo(np.float64).tiny))


def _lack(H: FloatArray) -> float:
    """What H's diagonal lacks, at least, to make it convex; most often nothing, as its factor tells quickly."""
    if dpotrf(H)[1] == 0:
        return 0.0
    return max(0.0, -float(np.linalg.eigvalsh(H)[0]))
