"""The predictions of theorems: the laws, distances, biases and variances of projected noise.

The public interface of the theory, ``td.theory``. All results are exact or proved bounds, computed from arrays and
noise scales alone; simulations are compared with them. Scales are sensitivity / epsilon, in counts; ``law="laplace"``
is continuous Laplace noise and ``law="geometric"`` the double geometric law on the integers.

Source: Zhu, Van Hentenryck, Fioretto, "Bias and Variance of Post-processing in Differential Privacy".
"""

from __future__ import annotations

from topdown.projection.linear.linear_covariance import linear_projection_covariance, linear_projection_matrix
from topdown.research.theory.bias_bounds import (
    BiasBound,
    bias_bound,
    l1_ball_probability,
    l1_ball_tail,
    sharp_bias_bound,
    tree_bias_bound,
)
from topdown.research.theory.linear_bias import in_safe_ball, linear_bias_bound
from topdown.research.theory.noise_laws import NoiseLaw, noise_mean_abs, noise_variance
from topdown.research.theory.nonnegative_exact import ProjectionMoments, nonnegative_sum_projection
from topdown.research.theory.nonnegative_laplace import nonnegative_sum_projection_laplace
from topdown.research.theory.nonnegative_two_level import TwoLevelMoments, nonnegative_top_down_two_level
from topdown.research.theory.projected_geometric import ProjectedGeometric, projected_geometric
from topdown.research.theory.projected_laplace import ProjectedLaplace, projected_laplace
from topdown.research.theory.tree_variance import (
    level_variances,
    projected_variance,
    topdown_equality_variance,
    tree_covariance,
)
from topdown.research.theory.wasserstein import empirical_wasserstein_floor, wasserstein_to_noise

__all__ = [
    "BiasBound",
    "NoiseLaw",
    "ProjectedGeometric",
    "ProjectedLaplace",
    "ProjectionMoments",
    "TwoLevelMoments",
    "bias_bound",
    "empirical_wasserstein_floor",
    "in_safe_ball",
    "l1_ball_probability",
    "l1_ball_tail",
    "level_variances",
    "linear_bias_bound",
    "linear_projection_covariance",
    "linear_projection_matrix",
    "noise_mean_abs",
    "noise_variance",
    "nonnegative_sum_projection",
    "nonnegative_sum_projection_laplace",
    "nonnegative_top_down_two_level",
    "projected_geometric",
    "projected_laplace",
    "projected_variance",
    "sharp_bias_bound",
    "topdown_equality_variance",
    "tree_bias_bound",
    "tree_covariance",
    "wasserstein_to_noise",
]
