"""The totals of ADMM's rounds as equations in the sites' Gram matrices.

A site's answer to a broadcast is a nonlinear function of its Gram matrix G_k that anyone can compute:

    total_t = sum_k w_k s_t(G_k)    for all rounds t,    s_t = B + u of a site with that Gram matrix

The broadcasts are known, so a site's answers depend on its own G_k only, and so do their derivatives.
"""

from dataclasses import dataclass

import numpy as np

from dagora.arrays import FloatArray
from dagora.audit.recovery import Setting
from dagora.audit.transcript import Transcript
from dagora.federated.message import array, number

_ROUNDS = 60  # later ones repeat what earlier ones said


@dataclass(frozen=True)
class Question:
    """A consensus broadcast, in units in which the metric is the identity."""

    W: FloatArray
    rho: float
    rescale: float
    mix: FloatArray
    keep: int


@dataclass(frozen=True)
class Equations:
    """Questions with their total answers.

    Unknowns: lower triangles L_k with G_k = L_k L_k', which keep G_k positive; then, where sites weigh by their
    rows, a logit of every w_k.
    """

    questions: tuple[Question, ...]
    totals: FloatArray  # (rounds, p, d)
    sites: int
    zero_diagonal: bool
    by_rows: bool

    @classmethod
    def of(cls, transcript: Transcript) -> "Equations":
        """Those that the totals of an ADMM run give."""
        setting = Setting.of(transcript.messages)
        rounds = [each for each in transcript.rounds if each.phase == "consensus"][:_ROUNDS]
        root = np.sqrt(setting.metric)
        d = rounds[0].total["position"].shape[1]
        unit = root[:, None] / root[:d]
        questions = tuple(
            Question(
                array(each.message, "W") * unit,
                number(each.message, "rho"),
                number(each.message, "rescale"),
                array(each.message, "mix"),
                int(number(each.message, "keep")),
            )
            for each in rounds
        )
        totals = np.stack([each.total["position"] * unit for each in rounds])
        by_rows = setting.mean is not None
        return cls(questions, totals, round(setting.sites), by_rows, by_rows)

    @property
    def derivatives(self) -> int:
        """How many numbers the derivatives of all answers are."""
        p = self.totals.shape[1]
        return int(self.totals.size * self.sites * p * (p + 1) // 2)

    def unpack(self, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        """L (K, p, p) and w (K,)."""
        p = self.totals.shape[1]
        rows, columns = np.tril_indices(p)
        L = np.zeros((self.sites, p, p))
        L[:, rows, columns] = x[: self.sites * len(rows)].reshape(self.sites, -1)
        if not self.by_rows:
            return L, np.full(self.sites, 1.0 / self.sites)
        logits = x[self.sites * len(rows) :]
        w = np.exp(logits - logits.max())
        return L, w / w.sum()

    def errors(self, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        """What the unknowns leave of the totals, and its Jacobian."""
        L, w = self.unpack(x)
        p = self.totals.shape[1]
        rows, columns = np.tril_indices(p)
        units = np.zeros((len(rows), p, p))
        units[np.arange(len(rows)), rows, columns] = 1.0
        G = L @ L.transpose(0, 2, 1)
        dG = units @ L[:, None].transpose(0, 1, 3, 2)
        dG = dG + dG.transpose(0, 1, 3, 2)
        s, ds = self._answers(G, dG)
        left = np.einsum("k,tkij->tij", w, s) - self.totals
        by_gram = (w[:, None, None, None] * ds).transpose(0, 3, 4, 1, 2).reshape(left.size, -1)
        if not self.by_rows:
            return left.ravel(), by_gram
        mean = np.einsum("k,tkij->tij", w, s)
        by_logit = (w[:, None, None] * (s - mean[:, None])).transpose(0, 2, 3, 1).reshape(left.size, -1)
        return left.ravel(), np.hstack([by_gram, by_logit])

    def _answers(self, G: FloatArray, dG: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Positions s (T, K, p, d) of sites with these Gram matrices, and their derivatives (T, K, m, p, d)."""
        K, p, d = self.sites, *self.totals.shape[1:]
        E, on = np.eye(p, d), np.arange(d)
        kept: list[tuple[FloatArray, FloatArray]] = []
        s_all, ds_all = [], []
        for asked in self.questions:
            u, du = np.zeros((K, p, d)), np.zeros((*dG.shape[:2], p, d))
            if len(asked.mix) > 0:
                for share, (s, ds) in zip(asked.mix, kept[-len(asked.mix) :], strict=True):
                    u += share * s
                    du += share * ds
                u = asked.rescale * (u - asked.W)
                du *= asked.rescale
            P = np.linalg.inv(G + asked.rho * np.eye(p))
            B = P @ (asked.rho * (asked.W - u) + G[:, :, :d])
            if self.zero_diagonal:
                B -= P * (B[:, on, on] / P[:, on, on])[:, None]
            dB = P[:, None] @ (dG @ (E - B)[:, None] - asked.rho * du)
            if self.zero_diagonal:
                dB -= P[:, None] * (dB[:, :, on, on] / P[:, None, on, on])[:, :, None]
            s, ds = B + u, dB + du
            kept = [*kept[len(kept) - asked.keep :], (s, ds)]
            s_all.append(s)
            ds_all.append(ds)
        return np.stack(s_all), np.stack(ds_all)
