//! Twins of `candle_nn::rotary_emb`: same signatures, and the bits of its slow functions on every device.
//!
//! candle's own `rope`, `rope_i` and `rope_thd` compute an output in one kernel. On CUDA the compiler may fuse
//! a product and a sum there, which changes about a quarter of all outputs in the dtypes where it does.
use candle_core::{Result, Tensor};

use crate::RopeSpec;

/// Half pairing; `xs` is (batch, heads, tokens, head_dim), tables are (tokens, head_dim / 2) or
/// (batch, tokens, head_dim / 2).
///
/// # Errors
/// As candle's chain on the same tensors.
pub fn rope(xs: &Tensor, cos: &Tensor, sin: &Tensor) -> Result<Tensor> {
    crate::rope(xs, cos, sin, &RopeSpec::half())
}

/// Interleaved pairing, else as [`rope`].
///
/// # Errors
/// As [`rope`].
pub fn rope_i(xs: &Tensor, cos: &Tensor, sin: &Tensor) -> Result<Tensor> {
    crate::rope(xs, cos, sin, &RopeSpec::interleaved())
}

/// Half pairing; `xs` is (batch, tokens, heads, head_dim), else as [`rope`].
///
/// # Errors
/// As [`rope`].
pub fn rope_thd(xs: &Tensor, cos: &Tensor, sin: &Tensor) -> Result<Tensor> {
    crate::rope(xs, cos, sin, &RopeSpec::half().tokens_first())
}
