//! Gated SiLU as a call made of views.
use std::marker::PhantomData;

use bitexact_sys as sys;

use crate::rope::Compute;
use crate::view::Layout;
use crate::{Memory, View, ViewError, ViewMut};

/// The arithmetic of silu. `r` rounds to the tensors' dtype, all else is float32.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Silu {
    /// `r(g / (1 + exp(-g)))`: PyTorch's `silu` on CUDA.
    #[default]
    Aten,
    /// `r(g * r(1 / (1 + exp(-g))))`: `x * sigmoid(x)`.
    Sigmoid,
    /// `e = r(exp(-g))`, `d = r(1 + e)`, `r(g / d)`: candle's silu in 16-bit types on the CPU, and in float16
    /// on CUDA. In bfloat16 on CUDA candle 0.11.1 computes [`Silu::Aten`], and so does it in float32.
    Candle,
    /// `r(1 / (1 + exp(-g)))`: `up * sigmoid(gate)`, and with [`Compute::F32`] PyTorch's `glu`.
    Glu,
}

impl Silu {
    fn code(self) -> i32 {
        match self {
            Silu::Aten => sys::BITEXACT_SILU_ATEN,
            Silu::Sigmoid => sys::BITEXACT_SILU_SIGMOID,
            Silu::Candle => sys::BITEXACT_SILU_CANDLE,
            Silu::Glu => sys::BITEXACT_SILU_GLU,
        }
    }

    pub(crate) fn from_code(code: i32) -> Option<Silu> {
        [Silu::Aten, Silu::Sigmoid, Silu::Candle, Silu::Glu].into_iter().find(|silu| silu.code() == code)
    }
}

/// Where [`Silu::Aten`] is limited from above; `up` then is to both sides. The limit is finite, above 0 and rounded
/// to the tensors' dtype, with [`Compute::F32`] taken as it is. NaN stays NaN.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub enum Clamp {
    /// Nowhere.
    #[default]
    None,
    /// The gate, before silu.
    Before(f32),
    /// What silu gives.
    After(f32),
}

/// `out[b, r, c] = silu(gate[b, r, c]) * up[b, r, c]`.
///
/// Tensors have one to three axes: (columns), (rows, columns) or (batches, rows, columns), all of one dtype:
/// float32, float16 or bfloat16. Columns are contiguous, the other strides are free, so that both halves of a
/// packed tensor need no copy.
#[derive(Debug)]
pub struct SiluMul<'a, M: Memory> {
    params: sys::bitexact_silu_mul_params,
    shape: Vec<usize>,
    borrow: PhantomData<(&'a mut [u8], M)>,
}

// SAFETY: the pointers stand for views, which may be sent and shared.
unsafe impl<M: Memory> Send for SiluMul<'_, M> {}
// SAFETY: as above.
unsafe impl<M: Memory> Sync for SiluMul<'_, M> {}

impl<'a, M: Memory> SiluMul<'a, M> {
    /// Three tensors of one shape.
    ///
    /// # Errors
    /// [`ViewError::Shape`], [`ViewError::DType`], [`ViewError::Rank`], [`ViewError::InnerStride`].
    pub fn new(gate: View<'a, M>, up: View<'a, M>, out: ViewMut<'a, M>) -> Result<Self, ViewError> {
        SiluMul::from_layouts(&gate.layout, &up.layout, &out.layout)
    }

    /// The result replaces `gate`.
    ///
    /// # Errors
    /// As [`SiluMul::new`].
    pub fn into_gate(gate: ViewMut<'a, M>, up: View<'a, M>) -> Result<Self, ViewError> {
        SiluMul::from_layouts(&gate.layout, &up.layout, &gate.layout)
    }

    /// The result replaces `up`.
    ///
    /// # Errors
    /// As [`SiluMul::new`].
    pub fn into_up(gate: View<'a, M>, up: ViewMut<'a, M>) -> Result<Self, ViewError> {
        SiluMul::from_layouts(&gate.layout, &up.layout, &up.layout)
    }

    fn from_layouts(gate: &Layout, up: &Layout, out: &Layout) -> Result<Self, ViewError> {
        for (tensor, layout) in [("gate", gate), ("up", up), ("out", out)] {
            check("gate", gate, tensor, layout)?;
        }
        let rank = gate.rank();
        // (batches, rows, columns), with leading axes of one element where there are fewer.
        let size = |back: usize| if back < rank { gate.size(rank - 1 - back) } else { 1 };
        let stride =
            |layout: &Layout, back: usize| if back < rank { layout.stride(rank - 1 - back) } else { 0 };
        let params = sys::bitexact_silu_mul_params {
            struct_size: size_of::<sys::bitexact_silu_mul_params>() as u32,
            flags: 0,
            dtype: gate.dtype.code(),
            compute_dtype: 0,
            silu: sys::BITEXACT_SILU_ATEN,
            reserved: 0,
            batches: size(2),
            rows: size(1),
            cols: size(0),
            gate: gate.address,
            gate_batch_stride: stride(gate, 2),
            gate_row_stride: stride(gate, 1),
            up: up.address,
            up_batch_stride: stride(up, 2),
            up_row_stride: stride(up, 1),
            out: out.address,
            out_batch_stride: stride(out, 2),
            out_row_stride: stride(out, 1),
            clamp: sys::BITEXACT_CLAMP_NONE,
            limit_bits: 0,
        };
        Ok(SiluMul { params, shape: gate.sizes(), borrow: PhantomData })
    }

    /// The arithmetic of silu; PyTorch's unless said.
    pub fn silu(mut self, silu: Silu) -> Self {
        self.params.silu = silu.code();
        self
    }

    /// A limit; none unless said.
    pub fn clamp(mut self, clamp: Clamp) -> Self {
        (self.params.clamp, self.params.limit_bits) = match clamp {
            Clamp::None => (sys::BITEXACT_CLAMP_NONE, 0),
            Clamp::Before(limit) => (sys::BITEXACT_CLAMP_BEFORE, limit.to_bits()),
            Clamp::After(limit) => (sys::BITEXACT_CLAMP_AFTER, limit.to_bits()),
        };
        self
    }

    /// [`Compute::F32`]: silu is not rounded before the product, as in `silu(gate.float()) * up.float()`.
    /// Otherwise it is, as in a chain of operators.
    pub fn compute(mut self, compute: Compute) -> Self {
        self.params.compute_dtype = compute.code();
        self
    }

    /// The C struct.
    pub fn params(&self) -> &sys::bitexact_silu_mul_params {
        &self.params
    }
}

/// A tensor of the call: right axes, right dtype, columns contiguous, shape of the first.
fn check(first: &'static str, like: &Layout, tensor: &'static str, layout: &Layout) -> Result<(), ViewError> {
    if layout.rank() > 3 {
        return Err(ViewError::Rank { tensor, found: layout.rank(), accepted: "1 to 3" });
    }
    if !layout.dtype.is_tensor() || layout.dtype != like.dtype {
        return Err(ViewError::DType { tensor, accepted: "F32, F16 or Bf16, the same for all" });
    }
    if layout.sizes() != like.sizes() {
        let accepted = format!("that of {first}, {:?}", like.sizes());
        return Err(ViewError::Shape { tensor, found: layout.sizes(), accepted });
    }
    layout.require_contiguous_end(tensor)
}

/// The runtime's own result of a [`SiluMul`], for `silu_mul_verify`.
#[derive(Debug)]
pub struct SiluMulReference<'a, M: Memory> {
    /// Shape and dtype of the call's output.
    pub out: View<'a, M>,
}

impl<M: Memory> SiluMulReference<'_, M> {
    pub(crate) fn to_sys(
        &self,
        call: &SiluMul<'_, M>,
    ) -> Result<sys::bitexact_silu_mul_reference, ViewError> {
        let layout = &self.out.layout;
        if layout.sizes() != call.shape {
            let accepted = format!("that of the call, {:?}", call.shape);
            return Err(ViewError::Shape { tensor: "the reference", found: layout.sizes(), accepted });
        }
        if layout.dtype.code() != call.params.dtype {
            return Err(ViewError::DType { tensor: "the reference", accepted: "that of the call" });
        }
        layout.require_contiguous_end("the reference")?;
        let rank = layout.rank();
        let stride = |back: usize| if back < rank { layout.stride(rank - 1 - back) } else { 0 };
        Ok(sys::bitexact_silu_mul_reference {
            struct_size: size_of::<sys::bitexact_silu_mul_reference>() as u32,
            flags: 0,
            out: layout.address,
            out_batch_stride: stride(2),
            out_row_stride: stride(1),
        })
    }
}
