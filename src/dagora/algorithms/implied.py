"""What a consensus tells the server of all rows together, without asking for it.

The sites' steps end where  G_k (B_k - E) = rho w_k D (W - B_k - u_k)  off the diagonal, so the totals of positions that
travel anyway give the gradient S (B - E) of the pooled least squares at the sites' mean B.  From it follow the pooled
covariance S, exactly once the sites agree, and the value of the loss.
"""

import numpy as np

from dagora.arrays import FloatArray
from dagora.devices import CPU, Device, inverted


def implied_covariance(
    B: FloatArray,
    gradient: FloatArray,
    variances: FloatArray,
    inputs: FloatArray | None = None,
    device: Device = CPU,
) -> FloatArray:
    """The covariance S whose least squares has this gradient S (B - I) off the diagonal, and these variances.

    As far as it is known: where the sites do not quite agree it may have no positive eigenvalues where it should
    (`least_eigenvalue` tells), and `as_covariance` makes one of it.

    The gradient's diagonal is unknown, for the sites keep diag(B_k) = 0 whatever the loss says; the variances,
    a total of the setup, stand in for it.  Where B has rows A of the past below its first d, W, their covariance
    (`inputs`) has to be known, too.  Then the lower rows of the gradient, C (W - I) + inputs A, give the cross
    covariance C, and the upper ones less C' A are those of the problem without a past.

    device: where B - I is inverted.
    """
    past = np.zeros((0, 0)) if inputs is None else inputs
    M, cross, known, missing = _completed(B, gradient, variances, past, device)
    S: FloatArray = np.block([[(known + np.diag(missing)) @ M, cross.T], [cross, past]])
    symmetric: FloatArray = (S + S.T) / 2.0
    return symmetric


def as_covariance(S: FloatArray) -> FloatArray:
    """The nearest symmetric matrix with positive eigenvalues."""
    eigenvalues, Q = np.linalg.eigh(S)
    positive: FloatArray = (Q * np.maximum(eigenvalues, 1e-6 * eigenvalues[-1])) @ Q.T
    return positive


def least_eigenvalue(S: FloatArray) -> float:
    """In units of the variances, as that of a correlation matrix; not positive where a variance is not."""
    variances = np.diag(S)
    if not (variances > 0.0).all():
        return float(variances.min())
    return float(np.linalg.eigvalsh(S / np.sqrt(np.outer(variances, variances)))[0])


def implied_loss(
    B: FloatArray,
    gradient: FloatArray,
    variances: FloatArray,
    inputs: FloatArray | None = None,
    device: Device = CPU,
) -> float:
    """tr((E - B)' S (E - B)) / 2, half the inner product of B - E with its gradient; NaN where that is not known."""
    d = B.shape[1]
    if len(B) > d and inputs is None:
        return float("nan")
    past = np.zeros((0, 0)) if inputs is None else inputs
    try:
        _, cross, _, missing = _completed(B, gradient, variances, past, device)
    except np.linalg.LinAlgError:
        return float("nan")
    diagonal = missing + (cross * B[d:]).sum(axis=0)
    off = float((B * gradient).sum() - (B[:d].diagonal() * gradient[:d].diagonal()).sum())
    return 0.5 * (off - float(diagonal.sum()))


def _completed(
    B: FloatArray, gradient: FloatArray, variances: FloatArray, past: FloatArray, device: Device
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """(B - I)^-1, the covariance with the past, the gradient without it off the diagonal, and on the diagonal."""
    d = B.shape[1]
    found = inverted(device.put(B[:d] - np.eye(d)))
    if found is None:
        raise np.linalg.LinAlgError("B - I is singular")
    M = device.get(found[0])
    cross: FloatArray = (gradient[d:] - past @ B[d:]) @ M
    upper = gradient[:d] - cross.T @ B[d:]
    known = upper - np.diag(np.diag(upper))
    missing: FloatArray = (variances[:d] - (known * M.T).sum(axis=1)) / np.diag(M)
    return M, cross, known, missing
