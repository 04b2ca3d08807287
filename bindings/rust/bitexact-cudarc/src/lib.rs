//! The operations of `bitexact` on cudarc's slices and views.
//!
//! [`Tensor`] and [`TensorMut`] say where a tensor lies in a `CudaSlice`, `CudaView` or `CudaViewMut`. The
//! functions take the pointers for the stream, hold cudarc's guards until the launch is enqueued, and are
//! safe: borrows keep the memory until then, and after that cudarc frees it in stream order.
//!
//! ```no_run
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use bitexact::{Library, Options};
//! use bitexact_cudarc::{silu_mul, Tensor, TensorMut};
//! use cudarc::driver::CudaContext;
//! use half::bf16;
//!
//! let stream = CudaContext::new(0)?.new_stream()?;
//! let context = Library::linked()?.device_context(0, Options::default())?;
//! // Rows of gate and up side by side: (16, 2 * 128), and a result of (16, 128).
//! let packed = stream.alloc_zeros::<bf16>(16 * 256)?;
//! let mut out = stream.alloc_zeros::<bf16>(16 * 128)?;
//! let answer = silu_mul(
//!     &context,
//!     &stream,
//!     Tensor::strided(&packed, 0, &[16, 128], &[256, 1]),
//!     Tensor::strided(&packed, 128, &[16, 128], &[256, 1]),
//!     TensorMut::contiguous(&mut out, &[16, 128]),
//!     |call| call,
//! )?;
//! # let _ = answer;
//! # Ok(())
//! # }
//! ```

use std::ffi::c_void;

use bitexact::{
    Answer, Context, DType, Device, Error, Rope, RopeReference, SiluMul, SiluMulReference, Stream,
    TableWidth, Verdict, View, ViewMut,
};
use cudarc::driver::{CudaStream, DevicePtr, DevicePtrMut, SyncOnDrop};
use half::{bf16, f16};

/// Types that tensors, tables and positions are made of.
pub trait Element: sealed::Sealed {
    /// What the library calls it.
    const DTYPE: DType;
}

mod sealed {
    pub trait Sealed {}
}

macro_rules! elements {
    ($($type:ty => $dtype:ident),*) => {
        $(
            impl sealed::Sealed for $type {}
            impl Element for $type {
                const DTYPE: DType = DType::$dtype;
            }
        )*
    };
}
elements!(f32 => F32, f16 => F16, bf16 => Bf16, f64 => F64, i32 => I32, i64 => I64);

/// Offset, sizes and strides, all in elements.
#[derive(Clone, Debug)]
struct Place {
    offset: usize,
    shape: Vec<usize>,
    strides: Vec<isize>,
}

impl Place {
    fn contiguous(shape: &[usize]) -> Place {
        let stride = |axis: usize| shape[axis + 1..].iter().product::<usize>() as isize;
        Place { offset: 0, shape: shape.to_vec(), strides: (0..shape.len()).map(stride).collect() }
    }

    fn strided(offset: usize, shape: &[usize], strides: &[isize]) -> Place {
        Place { offset, shape: shape.to_vec(), strides: strides.to_vec() }
    }
}

/// A tensor that is read.
pub struct Tensor<'a, T> {
    memory: &'a dyn DevicePtr<T>,
    place: Place,
}

/// A tensor that is written.
pub struct TensorMut<'a, T> {
    memory: &'a mut dyn DevicePtrMut<T>,
    place: Place,
}

impl<'a, T: Element> Tensor<'a, T> {
    /// The start of the memory as a row-major tensor.
    pub fn contiguous(memory: &'a impl DevicePtr<T>, shape: &[usize]) -> Self {
        Tensor { memory, place: Place::contiguous(shape) }
    }

    /// Any tensor inside the memory; offset, sizes and strides count elements.
    pub fn strided(memory: &'a impl DevicePtr<T>, offset: usize, shape: &[usize], strides: &[isize]) -> Self {
        Tensor { memory, place: Place::strided(offset, shape, strides) }
    }
}

impl<'a, T: Element> TensorMut<'a, T> {
    /// As [`Tensor::contiguous`].
    pub fn contiguous(memory: &'a mut impl DevicePtrMut<T>, shape: &[usize]) -> Self {
        TensorMut { memory, place: Place::contiguous(shape) }
    }

    /// As [`Tensor::strided`].
    pub fn strided(
        memory: &'a mut impl DevicePtrMut<T>,
        offset: usize,
        shape: &[usize],
        strides: &[isize],
    ) -> Self {
        TensorMut { memory, place: Place::strided(offset, shape, strides) }
    }
}

/// The guards of one launch: they make the stream wait for earlier uses of the memory, and when dropped make
/// later uses wait for the stream.
struct Guards<'g> {
    stream: &'g CudaStream,
    held: Vec<SyncOnDrop<'g>>,
}

impl<'g> Guards<'g> {
    fn new(stream: &'g CudaStream) -> Self {
        Guards { stream, held: Vec::new() }
    }

    fn view<T: Element>(&mut self, tensor: &'g Tensor<'_, T>) -> Result<View<'g, Device>, Error> {
        let (address, guard) = tensor.memory.device_ptr(self.stream);
        self.held.push(guard);
        let Place { offset, shape, strides } = &tensor.place;
        let base = address as *const c_void;
        // SAFETY: the memory is borrowed for 'g, and the guard orders what comes after.
        Ok(unsafe { View::from_raw(base, tensor.memory.len(), T::DTYPE, *offset, shape, strides) }?)
    }

    fn view_mut<T: Element>(
        &mut self,
        tensor: &'g mut TensorMut<'_, T>,
    ) -> Result<ViewMut<'g, Device>, Error> {
        let len = tensor.memory.len();
        let (address, guard) = tensor.memory.device_ptr_mut(self.stream);
        self.held.push(guard);
        let Place { offset, shape, strides } = &tensor.place;
        let base = address as *mut c_void;
        // SAFETY: the memory is borrowed exclusively for 'g, and the guard orders what comes after.
        Ok(unsafe { ViewMut::from_raw(base, len, T::DTYPE, *offset, shape, strides) }?)
    }
}

fn raw(stream: &CudaStream) -> Stream<'_> {
    // SAFETY: the stream is borrowed for as long as the result. Where its handle stands for the thread's own
    // stream, the result stays on this thread.
    unsafe { Stream::from_raw(stream.cu_stream().cast()) }
}

/// Enqueues `out = silu(gate) * up`. `configure` names the arithmetic: see [`SiluMul`].
///
/// # Errors
/// [`Error::View`] if a tensor leaves its memory or the tensors do not fit each other; else as
/// [`Context::<Device>::silu_mul`].
pub fn silu_mul<T: Element>(
    context: &Context<Device>,
    stream: &CudaStream,
    gate: Tensor<'_, T>,
    up: Tensor<'_, T>,
    mut out: TensorMut<'_, T>,
    configure: impl for<'c> FnOnce(SiluMul<'c, Device>) -> SiluMul<'c, Device>,
) -> Result<Answer, Error> {
    let mut guards = Guards::new(stream);
    let (gate, up) = (guards.view(&gate)?, guards.view(&up)?);
    let mut call = configure(SiluMul::new(gate, up, guards.view_mut(&mut out)?)?);
    // SAFETY: the guards order the memory around the launch and are held until after it.
    let answer = unsafe { context.silu_mul(&mut call, raw(stream)) };
    drop(guards);
    answer
}

/// After [`Answer::Unverified`]: compares the fused result with the runtime's own. Waits for the stream. `out`
/// is not written, but must be as in the call.
///
/// # Errors
/// As [`silu_mul`], and as [`Context::<Device>::silu_mul_verify`].
pub fn silu_mul_verify<T: Element>(
    context: &Context<Device>,
    stream: &CudaStream,
    gate: Tensor<'_, T>,
    up: Tensor<'_, T>,
    mut out: TensorMut<'_, T>,
    reference: Tensor<'_, T>,
    configure: impl for<'c> FnOnce(SiluMul<'c, Device>) -> SiluMul<'c, Device>,
) -> Result<Verdict, Error> {
    let mut guards = Guards::new(stream);
    let (gate, up) = (guards.view(&gate)?, guards.view(&up)?);
    let reference = SiluMulReference { out: guards.view(&reference)? };
    let call = configure(SiluMul::new(gate, up, guards.view_mut(&mut out)?)?);
    // SAFETY: as in `silu_mul`.
    let verdict = unsafe { context.silu_mul_verify(&call, &reference, raw(stream)) };
    drop(guards);
    verdict
}

/// A tensor to rotate.
pub enum Rotated<'a, T> {
    /// The result replaces the tensor.
    InPlace(TensorMut<'a, T>),
    /// Input and output.
    Into(Tensor<'a, T>, TensorMut<'a, T>),
}

impl<T: Element> Rotated<'_, T> {
    fn views<'g>(&'g mut self, guards: &mut Guards<'g>) -> Result<bitexact::InOut<'g, Device>, Error> {
        match self {
            Rotated::InPlace(tensor) => Ok(guards.view_mut(tensor)?.into()),
            Rotated::Into(input, output) => Ok((guards.view(input)?, guards.view_mut(output)?).into()),
        }
    }
}

/// The tables of a rotation, and the row that each token reads.
pub struct Tables<'a, U> {
    /// (rows, width), (batches, rows, width) or (batches, rows, heads, width).
    pub cos: Tensor<'a, U>,
    /// As `cos`.
    pub sin: Tensor<'a, U>,
    /// One entry for each pair, or for each element.
    pub width: TableWidth,
    /// (tokens) or (batches, tokens); without them token t reads row t.
    pub positions: Option<Tensor<'a, i64>>,
}

/// Enqueues the rotation of q, and of k if given; axes are (batches, tokens, heads, head_dim). `configure`
/// names pairing and arithmetic: see [`Rope`].
///
/// # Errors
/// As [`silu_mul`].
pub fn rope<T: Element, U: Element>(
    context: &Context<Device>,
    stream: &CudaStream,
    mut q: Rotated<'_, T>,
    mut k: Option<Rotated<'_, T>>,
    tables: Tables<'_, U>,
    configure: impl for<'c> FnOnce(Rope<'c, Device>) -> Rope<'c, Device>,
) -> Result<Answer, Error> {
    let mut guards = Guards::new(stream);
    let mut call = configure(rope_call(&mut guards, &mut q, k.as_mut(), &tables)?);
    // SAFETY: the guards order the memory around the launch and are held until after it.
    let answer = unsafe { context.rope(&mut call, raw(stream)) };
    drop(guards);
    answer
}

/// As [`silu_mul_verify`], with the runtime's own results for q and, if the call has k, for k.
///
/// # Errors
/// As [`silu_mul_verify`].
#[allow(clippy::too_many_arguments)]
pub fn rope_verify<T: Element, U: Element>(
    context: &Context<Device>,
    stream: &CudaStream,
    mut q: Rotated<'_, T>,
    mut k: Option<Rotated<'_, T>>,
    tables: Tables<'_, U>,
    q_reference: Tensor<'_, T>,
    k_reference: Option<Tensor<'_, T>>,
    configure: impl for<'c> FnOnce(Rope<'c, Device>) -> Rope<'c, Device>,
) -> Result<Verdict, Error> {
    let mut guards = Guards::new(stream);
    let k_view = k_reference.as_ref().map(|k| guards.view(k)).transpose()?;
    let reference = RopeReference { q: guards.view(&q_reference)?, k: k_view };
    let call = configure(rope_call(&mut guards, &mut q, k.as_mut(), &tables)?);
    // SAFETY: as in `rope`.
    let verdict = unsafe { context.rope_verify(&call, &reference, raw(stream)) };
    drop(guards);
    verdict
}

fn rope_call<'g, T: Element, U: Element>(
    guards: &mut Guards<'g>,
    q: &'g mut Rotated<'_, T>,
    k: Option<&'g mut Rotated<'_, T>>,
    tables: &'g Tables<'_, U>,
) -> Result<Rope<'g, Device>, Error> {
    let (cos, sin) = (guards.view(&tables.cos)?, guards.view(&tables.sin)?);
    let mut call = Rope::new(q.views(guards)?, cos, sin, tables.width)?;
    if let Some(k) = k {
        call = call.with_k(k.views(guards)?)?;
    }
    if let Some(positions) = &tables.positions {
        call = call.with_positions(guards.view(positions)?)?;
    }
    Ok(call)
}
