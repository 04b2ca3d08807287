//! Fused rotary embedding and SiLU-mul for candle, with the bits of candle's own chain of operators.
//!
//! Each function has a chain of candle operators as its truth. At first use of a kernel the chain runs, the
//! fused result is compared with it bit by bit, and the chain's result is returned; from then on the fused
//! kernel serves, or, after a single differing bit, the chain for good. What the library does not offer runs
//! as the chain too. [`fallbacks`] and [`reports`] tell what happened. NaN results are NaN, but in the
//! library's one pattern.
//!
//! candle's own fused `candle_nn::rotary_emb::rope` is not the truth here: on CUDA its rounding depends on
//! the compiler. The truth is its slow form.
//!
//! Gradients: every function records a node in the graph, so none is lost.
//!
//! ```
//! # fn main() -> candle_core::Result<()> {
//! use bitexact_candle::{rope_qk, silu_mul, Numerics, RopeSpec};
//! use candle_core::{DType, Device, Tensor};
//!
//! let tensor = |shape: &[usize]| Tensor::randn(0f32, 1., shape, &Device::Cpu)?.to_dtype(DType::BF16);
//! let (q, k) = (tensor(&[1, 8, 16, 64])?, tensor(&[1, 2, 16, 64])?); // batch, heads, tokens, head_dim
//! let (cos, sin) = (tensor(&[16, 32])?, tensor(&[16, 32])?);
//! let (q, k) = rope_qk(&q, &k, &cos, &sin, &RopeSpec::half())?;
//! let hidden = silu_mul(&tensor(&[16, 256])?, &tensor(&[16, 256])?, Numerics::Candle)?;
//! # assert_eq!((q.dims(), k.dims(), hidden.dims()), (&[1, 8, 16, 64][..], &[1, 2, 16, 64][..], &[16, 256][..]));
//! # Ok(())
//! # }
//! ```

mod call;
mod chain;
mod choice;
#[cfg(feature = "cuda")]
mod cuda;
mod fallback;
mod host;
mod operations;
pub mod rotary_emb;

pub use bitexact::{GateReport, Pairing, TableWidth, Verdict};
pub use fallback::{fallbacks, reports, Fallback};
pub use operations::{rope, rope_qk, silu_mul, swiglu};

/// Runs the lines of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

/// Whose silu.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Numerics {
    /// candle's `silu`, then `mul`. In 16-bit types candle's CPU rounds three times in silu, and so does
    /// float16 on CUDA; bfloat16 on CUDA rounds once in candle 0.11.1. Which it is, is found at first use by
    /// trying all 65,536 inputs.
    Candle,
    /// PyTorch's `silu`, which rounds once; then `mul`. The chain is silu in float32 between two casts.
    Torch,
}

/// Order of the axes of q and k.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Axes {
    /// (batch, heads, tokens, head_dim).
    HeadsFirst,
    /// (batch, tokens, heads, head_dim).
    TokensFirst,
}

/// Which rotation.
///
/// Tables have the axes (tokens, width), (batch, tokens, width), or four axes in the order of q where an
/// axis of one element broadcasts; they may be longer than q has tokens, and any strides will do, so that
/// parts of a complex or 2x2 table need no copy. In float32 with 16-bit q the chain is: upcast, rotate, cast
/// back. The first width (or 2 * width) elements of a head rotate, the rest is copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RopeSpec {
    /// Which elements of a head form a pair.
    pub pairing: Pairing,
    /// Order of the axes of q and k.
    pub axes: Axes,
    /// One table entry for each pair, or for each element.
    pub width: TableWidth,
}

impl RopeSpec {
    /// Pairs (j, j + rotary_dim / 2), heads first, one table entry for each pair: `rope_slow`.
    pub const fn half() -> RopeSpec {
        RopeSpec { pairing: Pairing::Half, axes: Axes::HeadsFirst, width: TableWidth::Half }
    }

    /// Pairs (2j, 2j + 1), heads first, one table entry for each pair: `rope_i_slow`.
    pub const fn interleaved() -> RopeSpec {
        RopeSpec { pairing: Pairing::Interleaved, axes: Axes::HeadsFirst, width: TableWidth::Half }
    }

    /// The same with tokens before heads.
    pub const fn tokens_first(mut self) -> RopeSpec {
        self.axes = Axes::TokensFirst;
        self
    }

    /// The same with one table entry for each element.
    pub const fn full_width(mut self) -> RopeSpec {
        self.width = TableWidth::Full;
        self
    }
}
