//! Rotary embedding as a call made of views.
use std::marker::PhantomData;

use bitexact_sys as sys;

use crate::view::Layout;
use crate::{DType, Memory, View, ViewError, ViewMut};

/// Which elements of a head form a pair.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Pairing {
    /// j with j + rotary_dim / 2 (NeoX, `rotate_half`).
    #[default]
    Half,
    /// 2j with 2j + 1 (GPT-J).
    Interleaved,
}

impl Pairing {
    fn code(self) -> i32 {
        match self {
            Pairing::Half => sys::BITEXACT_PAIRING_HALF,
            Pairing::Interleaved => sys::BITEXACT_PAIRING_INTERLEAVED,
        }
    }
}

/// How the two products become an output: see `bitexact_rope_params` in the C header for each formula.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Combine {
    /// Every product and sum rounded: any chain of separate operators.
    #[default]
    Separate,
    /// PyTorch's complex multiply on CUDA.
    Complex,
    /// The same, as other builds compile it.
    ComplexAlt,
    /// `torch.addcmul` onto the product with cos.
    AddcmulCos,
    /// `torch.addcmul` onto the product with the pair's first element.
    AddcmulX1,
}

impl Combine {
    fn code(self) -> i32 {
        match self {
            Combine::Separate => sys::BITEXACT_COMBINE_SEPARATE,
            Combine::Complex => sys::BITEXACT_COMBINE_COMPLEX,
            Combine::ComplexAlt => sys::BITEXACT_COMBINE_COMPLEX_ALT,
            Combine::AddcmulCos => sys::BITEXACT_COMBINE_ADDCMUL_COS,
            Combine::AddcmulX1 => sys::BITEXACT_COMBINE_ADDCMUL_X1,
        }
    }

    pub(crate) fn from_code(code: i32) -> Option<Combine> {
        [Combine::Separate, Combine::Complex, Combine::ComplexAlt, Combine::AddcmulCos, Combine::AddcmulX1]
            .into_iter()
            .find(|combine| combine.code() == code)
    }
}

/// The dtype that the arithmetic rounds to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Compute {
    /// The eager chain's: PyTorch's promotion of the tensors' and the tables' dtype.
    #[default]
    Eager,
    /// Upcast to float32 before the chain.
    F32,
    /// Upcast to float64 before the chain.
    F64,
}

impl Compute {
    pub(crate) fn code(self) -> i32 {
        match self {
            Compute::Eager => sys::BITEXACT_DTYPE_DEFAULT,
            Compute::F32 => sys::BITEXACT_DTYPE_FLOAT32,
            Compute::F64 => sys::BITEXACT_DTYPE_FLOAT64,
        }
    }
}

/// How wide a table is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TableWidth {
    /// rotary_dim / 2 entries: one for each pair.
    Half,
    /// rotary_dim entries: one for each element; the two of a pair need not agree.
    Full,
}

/// A tensor to rotate: replaced by its result, or read and written elsewhere.
#[derive(Debug)]
pub enum InOut<'a, M: Memory> {
    /// The result replaces the tensor.
    InPlace(ViewMut<'a, M>),
    /// Input and output.
    Into(View<'a, M>, ViewMut<'a, M>),
}

impl<'a, M: Memory> From<ViewMut<'a, M>> for InOut<'a, M> {
    fn from(tensor: ViewMut<'a, M>) -> Self {
        InOut::InPlace(tensor)
    }
}

impl<'a, M: Memory> From<(View<'a, M>, ViewMut<'a, M>)> for InOut<'a, M> {
    fn from((input, output): (View<'a, M>, ViewMut<'a, M>)) -> Self {
        InOut::Into(input, output)
    }
}

impl<M: Memory> InOut<'_, M> {
    fn layouts(&self) -> (&Layout, &Layout) {
        match self {
            InOut::InPlace(tensor) => (&tensor.layout, &tensor.layout),
            InOut::Into(input, output) => (&input.layout, &output.layout),
        }
    }
}

/// Rotates q, and k if given, in one launch.
///
/// q and k have the axes (batches, tokens, heads, head_dim), in this order whatever the memory order is
/// ([`View::transpose`] helps), with head_dim contiguous; head counts differ freely. Tables have the axes
/// (rows, width), (batches, rows, width) or (batches, rows, heads, width), where an axis of one element
/// broadcasts; any element stride will do. The first rotary_dim elements of a head rotate (all of a table's
/// width), the rest is copied.
///
/// ```
/// # #[cfg(feature = "link")]
/// # fn main() -> Result<(), bitexact::Error> {
/// use bitexact::{Answer, Bf16, Library, Options, Rope, TableWidth, View, ViewMut};
///
/// let (tokens, heads, head_dim) = (3, 2, 4);
/// let mut q = vec![Bf16(0x3f80); tokens * heads * head_dim]; // 1.0
/// let cos = vec![Bf16(0); tokens * head_dim / 2]; // a quarter turn
/// let sin = vec![Bf16(0x3f80); tokens * head_dim / 2];
/// let table = [tokens, head_dim / 2];
/// let mut call = Rope::new(
///     ViewMut::contiguous(&mut q, &[1, tokens, heads, head_dim])?,
///     View::contiguous(&cos, &table)?,
///     View::contiguous(&sin, &table)?,
///     TableWidth::Half,
/// )?;
/// let context = Library::linked()?.host_context(Options::default())?;
/// assert_eq!(context.rope(&mut call)?, Answer::Served);
/// assert_eq!(q[..4], [Bf16(0xbf80), Bf16(0xbf80), Bf16(0x3f80), Bf16(0x3f80)]); // -1 -1 1 1
/// # Ok(())
/// # }
/// # #[cfg(not(feature = "link"))]
/// # fn main() {}
/// ```
#[derive(Debug)]
pub struct Rope<'a, M: Memory> {
    params: sys::bitexact_rope_params,
    cos: Layout,
    sin: Layout,
    borrow: PhantomData<(&'a mut [u8], M)>,
}

// SAFETY: the pointers stand for views, which may be sent and shared.
unsafe impl<M: Memory> Send for Rope<'_, M> {}
// SAFETY: as above.
unsafe impl<M: Memory> Sync for Rope<'_, M> {}

impl<'a, M: Memory> Rope<'a, M> {
    /// A call on q alone, in half pairing, with every product and sum rounded.
    ///
    /// # Errors
    /// [`ViewError::Rank`], [`ViewError::Shape`], [`ViewError::DType`], [`ViewError::InnerStride`].
    pub fn new(
        q: impl Into<InOut<'a, M>>,
        cos: View<'a, M>,
        sin: View<'a, M>,
        width: TableWidth,
    ) -> Result<Self, ViewError> {
        let q = q.into();
        let (input, output) = q.layouts();
        check_heads("q", input, output)?;
        check_tables(&cos.layout, &sin.layout, input.dtype)?;
        let rank = cos.layout.rank();
        let entries = cos.layout.size(rank - 1);
        let mut params = sys::bitexact_rope_params {
            dtype: input.dtype.code(),
            table_dtype: cos.layout.dtype.code(),
            batches: input.size(0),
            tokens: input.size(1),
            q_heads: input.size(2),
            head_dim: input.size(3),
            rotary_dim: if width == TableWidth::Half { entries.saturating_mul(2) } else { entries },
            table_width: entries,
            table_rows: rows(&cos.layout).min(rows(&sin.layout)),
            q_in: input.address,
            q_in_batch_stride: input.stride(0),
            q_in_token_stride: input.stride(1),
            q_in_head_stride: input.stride(2),
            q_out: output.address,
            q_out_batch_stride: output.stride(0),
            q_out_token_stride: output.stride(1),
            q_out_head_stride: output.stride(2),
            ..empty_params()
        };
        (params.cos, params.sin) = (cos.layout.address, sin.layout.address);
        [
            params.cos_batch_stride,
            params.cos_token_stride,
            params.cos_head_stride,
            params.cos_element_stride,
        ] = table_strides(&cos.layout);
        [
            params.sin_batch_stride,
            params.sin_token_stride,
            params.sin_head_stride,
            params.sin_element_stride,
        ] = table_strides(&sin.layout);
        let call = Rope { params, cos: cos.layout, sin: sin.layout, borrow: PhantomData };
        call.check_table_axes()?;
        Ok(call)
    }

    /// Rotates k in the same launch.
    ///
    /// # Errors
    /// As [`Rope::new`]; batches, tokens and head_dim are those of q.
    pub fn with_k(mut self, k: impl Into<InOut<'a, M>>) -> Result<Self, ViewError> {
        let k = k.into();
        let (input, output) = k.layouts();
        check_heads("k", input, output)?;
        let p = &mut self.params;
        if input.dtype.code() != p.dtype {
            return Err(ViewError::DType { tensor: "k", accepted: "that of q" });
        }
        if (input.size(0), input.size(1), input.size(3)) != (p.batches, p.tokens, p.head_dim) {
            let accepted = format!("[{}, {}, any, {}], as q", p.batches, p.tokens, p.head_dim);
            return Err(ViewError::Shape { tensor: "k", found: input.sizes(), accepted });
        }
        p.k_heads = input.size(2);
        (p.k_in, p.k_out) = (input.address, output.address);
        [p.k_in_batch_stride, p.k_in_token_stride, p.k_in_head_stride] = [0, 1, 2].map(|a| input.stride(a));
        [p.k_out_batch_stride, p.k_out_token_stride, p.k_out_head_stride] =
            [0, 1, 2].map(|a| output.stride(a));
        self.check_table_axes()?;
        Ok(self)
    }

    /// The table row of each token, as (tokens) or (batches, tokens) of i32 or i64; otherwise token t reads
    /// row t. A position outside the table reads nothing: its row is written as NaN and counted in
    /// [`crate::Info::position_errors`].
    ///
    /// # Errors
    /// [`ViewError::Rank`], [`ViewError::Shape`], [`ViewError::DType`].
    pub fn with_positions(mut self, positions: View<'a, M>) -> Result<Self, ViewError> {
        let (p, layout) = (&mut self.params, &positions.layout);
        let tensor = "positions";
        if !matches!(layout.dtype, DType::I32 | DType::I64) {
            return Err(ViewError::DType { tensor, accepted: "I32 or I64" });
        }
        let last = match layout.rank() {
            rank @ 1..=2 => rank - 1,
            found => return Err(ViewError::Rank { tensor, found, accepted: "1 or 2" }),
        };
        let batches = if last == 1 { layout.size(0) } else { 1 };
        if layout.size(last) != p.tokens || (batches != 1 && batches != p.batches) {
            let accepted = format!("[{}] or [1 or {}, {0}]", p.tokens, p.batches);
            return Err(ViewError::Shape { tensor, found: layout.sizes(), accepted });
        }
        p.positions = layout.address;
        p.positions_dtype = layout.dtype.code();
        p.positions_token_stride = layout.stride(last);
        p.positions_batch_stride = if last == 1 { layout.stride(0) } else { 0 };
        Ok(self)
    }

    /// Pairs of input and output.
    pub fn pairing(self, pairing: Pairing) -> Self {
        self.pairings(pairing, pairing)
    }

    /// Pairs of the input and of the output, each on its own; where they differ the call is never in place.
    pub fn pairings(mut self, input: Pairing, output: Pairing) -> Self {
        (self.params.pairing_in, self.params.pairing_out) = (input.code(), output.code());
        self
    }

    /// How the products become an output.
    pub fn combine(mut self, combine: Combine) -> Self {
        self.params.combine = combine.code();
        self
    }

    /// The dtype that the arithmetic rounds to.
    pub fn compute(mut self, compute: Compute) -> Self {
        self.params.compute_dtype = compute.code();
        self
    }

    /// Rotate backwards: sin is negated, which is exact.
    pub fn inverse(self, inverse: bool) -> Self {
        self.flag(sys::BITEXACT_ROPE_INVERSE as u32, inverse)
    }

    /// A zero result is +0, as in chains whose sum starts at +0.
    pub fn sum_from_zero(self, from_zero: bool) -> Self {
        self.flag(sys::BITEXACT_ROPE_SUM_FROM_ZERO as u32, from_zero)
    }

    fn flag(mut self, flag: u32, on: bool) -> Self {
        self.params.flags = if on { self.params.flags | flag } else { self.params.flags & !flag };
        self
    }

    /// The C struct.
    pub fn params(&self) -> &sys::bitexact_rope_params {
        &self.params
    }

    /// A table reaches every batch and head that reads it.
    fn check_table_axes(&self) -> Result<(), ViewError> {
        let p = &self.params;
        let heads = p.q_heads.max(p.k_heads);
        for (tensor, layout) in [("cos", &self.cos), ("sin", &self.sin)] {
            let rank = layout.rank();
            let batches = if rank >= 3 { layout.size(0) } else { 1 };
            let table_heads = if rank == 4 { layout.size(2) } else { 1 };
            if (batches != 1 && batches != p.batches) || (table_heads != 1 && table_heads < heads) {
                let accepted = format!("1 or {} batches, 1 or {heads} heads", p.batches);
                return Err(ViewError::Shape { tensor, found: layout.sizes(), accepted });
            }
        }
        Ok(())
    }
}

fn check_heads(tensor: &'static str, input: &Layout, output: &Layout) -> Result<(), ViewError> {
    for layout in [input, output] {
        if layout.rank() != 4 {
            return Err(ViewError::Rank { tensor, found: layout.rank(), accepted: "4" });
        }
        if !layout.dtype.is_tensor() || layout.dtype != input.dtype {
            return Err(ViewError::DType { tensor, accepted: "F32, F16 or Bf16, also for its output" });
        }
        if layout.sizes() != input.sizes() {
            let accepted = format!("that of the input, {:?}", input.sizes());
            return Err(ViewError::Shape { tensor, found: layout.sizes(), accepted });
        }
        layout.require_contiguous_end(tensor)?;
    }
    Ok(())
}

fn check_tables(cos: &Layout, sin: &Layout, dtype: DType) -> Result<(), ViewError> {
    for (tensor, layout) in [("cos", cos), ("sin", sin)] {
        if !(2..=4).contains(&layout.rank()) {
            return Err(ViewError::Rank { tensor, found: layout.rank(), accepted: "2 to 4" });
        }
        if layout.dtype != cos.dtype || ![dtype, DType::F32, DType::F64].contains(&layout.dtype) {
            return Err(ViewError::DType { tensor, accepted: "that of q, F32 or F64, the same for both" });
        }
        if layout.size(layout.rank() - 1) != cos.size(cos.rank() - 1) {
            let accepted = format!("as wide as cos, {}", cos.size(cos.rank() - 1));
            return Err(ViewError::Shape { tensor, found: layout.sizes(), accepted });
        }
    }
    Ok(())
}

/// Size of the token axis of a table.
fn rows(table: &Layout) -> i64 {
    table.size(if table.rank() == 2 { 0 } else { 1 })
}

/// Strides of batch, token, head and element.
fn table_strides(table: &Layout) -> [i64; 4] {
    match table.rank() {
        2 => [0, table.stride(0), 0, table.stride(1)],
        3 => [table.stride(0), table.stride(1), 0, table.stride(2)],
        _ => [table.stride(0), table.stride(1), table.stride(2), table.stride(3)],
    }
}

fn empty_params() -> sys::bitexact_rope_params {
    // SAFETY: the struct holds integers and pointers only, for which zero is a value.
    let mut params: sys::bitexact_rope_params = unsafe { std::mem::zeroed() };
    params.struct_size = size_of::<sys::bitexact_rope_params>() as u32;
    params
}

/// The runtime's own result of a [`Rope`], for `rope_verify`.
#[derive(Debug)]
pub struct RopeReference<'a, M: Memory> {
    /// Shape and dtype of q's output.
    pub q: View<'a, M>,
    /// Shape and dtype of k's output; given exactly if the call has k.
    pub k: Option<View<'a, M>>,
}

impl<M: Memory> RopeReference<'_, M> {
    pub(crate) fn to_sys(&self, call: &Rope<'_, M>) -> Result<sys::bitexact_rope_reference, ViewError> {
        let p = &call.params;
        let check = |tensor: &'static str, view: &View<'_, M>, heads: i64| {
            let layout = &view.layout;
            check_heads(tensor, layout, layout)?;
            if layout.dtype.code() != p.dtype {
                return Err(ViewError::DType { tensor, accepted: "that of the call" });
            }
            let expected = [p.batches, p.tokens, heads, p.head_dim];
            if [0, 1, 2, 3].map(|axis| layout.size(axis)) != expected {
                let accepted = format!("that of the call, {expected:?}");
                return Err(ViewError::Shape { tensor, found: layout.sizes(), accepted });
            }
            Ok(())
        };
        let mut raw = sys::bitexact_rope_reference {
            struct_size: size_of::<sys::bitexact_rope_reference>() as u32,
            flags: 0,
            q: self.q.layout.address,
            q_batch_stride: self.q.layout.stride(0),
            q_token_stride: self.q.layout.stride(1),
            q_head_stride: self.q.layout.stride(2),
            k: std::ptr::null(),
            k_batch_stride: 0,
            k_token_stride: 0,
            k_head_stride: 0,
        };
        check("the reference q", &self.q, p.q_heads)?;
        if let Some(k) = &self.k {
            check("the reference k", k, p.k_heads)?;
            raw.k = k.layout.address;
            [raw.k_batch_stride, raw.k_token_stride, raw.k_head_stride] =
                [0, 1, 2].map(|a| k.layout.stride(a));
        } else if p.k_heads > 0 {
            let accepted = "given, as the call has k".to_owned();
            return Err(ViewError::Shape { tensor: "the reference k", found: vec![], accepted });
        }
        Ok(raw)
    }
}
