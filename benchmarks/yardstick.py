"""The yardstick for speed: the paper's Algorithm 1 transcribed plainly to numpy and scipy, nothing of Dagora used.

All rounds of Appendix B, closed-form local steps, the W-step on the mean with an analytic gradient and L-BFGS.
"""

import numpy as np
import numpy.typing as npt
import scipy.linalg
import scipy.optimize

Array = npt.NDArray[np.float64]


def notears_admm(
    rows: list[Array],
    lam: float = 0.01,
    rho1: float = 1e-3,
    rho2: float = 1e-3,
    gamma1: float = 1.75,
    gamma2: float = 1.25,
    most: float = 1e16,
    rounds: int = 200,
) -> Array:
    """Return W before thresholding."""
    K, d = len(rows), rows[0].shape[1]
    n = sum(len(x) for x in rows)
    centred = [x - x.mean(axis=0) for x in rows]
    S = [x.T @ x / n for x in centred]
    W, beta, alpha = np.zeros((d, d)), [np.zeros((d, d)) for _ in rows], 0.0
    for _ in range(rounds):
        B = [np.linalg.solve(S[k] + rho2 * np.eye(d), rho2 * W - beta[k] + S[k]) for k in range(K)]
        Z = sum((B[k] + beta[k] / rho2 for k in range(K)), np.zeros((d, d))) / K

        def objective(
            w: Array, Z: Array = Z, alpha: float = alpha, rho1: float = rho1, rho2: float = rho2
        ) -> tuple[float, Array]:
            W = w.reshape(d, d)
            with np.errstate(over="ignore", invalid="ignore"):
                E = scipy.linalg.expm(W * W)
                h = float(np.trace(E)) - d
                gap = W - Z
                value = lam * np.abs(W).sum() + alpha * h + rho1 / 2 * h * h + K * rho2 / 2 * (gap * gap).sum()
                gradient = lam * np.sign(W) + (alpha + rho1 * h) * 2 * W * E.T + K * rho2 * gap
            return float(value), gradient.ravel()

        W = scipy.optimize.minimize(objective, W.ravel(), jac=True, method="L-BFGS-B").x.reshape(d, d)
        alpha += rho1 * (float(np.trace(scipy.linalg.expm(W * W))) - d)
        beta = [beta[k] + rho2 * (B[k] - W) for k in range(K)]
        if rho1 >= most and rho2 >= most:
            break
        rho1, rho2 = min(rho1 * gamma1, most), min(rho2 * gamma2, most)
    return W
