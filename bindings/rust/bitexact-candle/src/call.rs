//! From candle's layouts to calls of the library, for any memory.
use std::ffi::c_void;

use bitexact::{
    Answer, Compute, DType, Memory, Rope, RopeReference, Silu, SiluMul, SiluMulReference, Verdict, View,
    ViewMut,
};
use candle_core::Layout;

use crate::fallback::Refusal;
use crate::{Axes, RopeSpec};

/// A whole allocation.
#[derive(Clone, Copy)]
pub struct Allocation {
    pub address: *mut c_void,
    pub len: usize,
    pub dtype: DType,
}

/// A tensor: an allocation, and candle's layout in it.
#[derive(Clone, Copy)]
struct Operand<'l> {
    allocation: Allocation,
    layout: &'l Layout,
}

pub fn dtype(dtype: candle_core::DType) -> Result<DType, Refusal> {
    match dtype {
        candle_core::DType::F32 => Ok(DType::F32),
        candle_core::DType::F16 => Ok(DType::F16),
        candle_core::DType::BF16 => Ok(DType::Bf16),
        candle_core::DType::F64 => Ok(DType::F64),
        other => Err(Refusal::Other(format!("no kernels for {other:?}"))),
    }
}

/// The library on one kind of candle storage.
pub trait Place<'t> {
    type Memory: Memory;
    type Storage;
    /// The allocation behind a storage. It may be used as long as the place lives.
    fn allocation(&self, storage: &'t Self::Storage) -> Result<Allocation, Refusal>;
    /// A new storage of `len` elements of the dtype of `like`, written by `fill`.
    fn filled(
        &self,
        like: &'t Self::Storage,
        len: usize,
        fill: impl FnOnce(Allocation) -> Result<(), Refusal>,
    ) -> Result<Self::Storage, Refusal>;
    fn run_rope(&self, call: &mut Rope<'_, Self::Memory>) -> Result<Answer, bitexact::Error>;
    fn run_silu_mul(&self, call: &mut SiluMul<'_, Self::Memory>) -> Result<Answer, bitexact::Error>;
    fn verify_rope(
        &self,
        call: &Rope<'_, Self::Memory>,
        reference: &RopeReference<'_, Self::Memory>,
    ) -> Result<Verdict, bitexact::Error>;
    fn verify_silu_mul(
        &self,
        call: &SiluMul<'_, Self::Memory>,
        reference: &SiluMulReference<'_, Self::Memory>,
    ) -> Result<Verdict, bitexact::Error>;
}

/// A tensor as candle hands it to an operation.
pub type Tensor<'t, S> = (&'t S, &'t Layout);

/// The chain's results for q and k.
pub type Results<'t, S> = (Tensor<'t, S>, Option<Tensor<'t, S>>);

fn operand<'t, P: Place<'t>>(place: &P, tensor: Tensor<'t, P::Storage>) -> Result<Operand<'t>, Refusal> {
    Ok(Operand { allocation: place.allocation(tensor.0)?, layout: tensor.1 })
}

/// The result of `silu(gate) * up`; or, given the chain's `result`, a comparison with it.
pub fn run_silu_mul<'t, P: Place<'t>>(
    place: &P,
    gate: Tensor<'t, P::Storage>,
    up: Tensor<'t, P::Storage>,
    silu: Silu,
    result: Option<Tensor<'t, P::Storage>>,
) -> Result<P::Storage, Refusal> {
    let (gate_operand, up_operand) = (operand(place, gate)?, operand(place, up)?);
    let result = result.map(|tensor| operand(place, tensor)).transpose()?;
    place.filled(gate.0, gate.1.shape().elem_count(), |out| {
        let mut call = silu_mul(gate_operand, up_operand, out, silu)?;
        match result {
            None => served(place.run_silu_mul(&mut call)?),
            Some(result) => {
                let reference = silu_mul_reference(gate.1, up.1, result)?;
                place.verify_silu_mul(&call, &reference)?;
                Ok(())
            }
        }
    })
}

/// The tensors of one rotation.
pub struct RopeTensors<'t, S> {
    pub q: Tensor<'t, S>,
    pub k: Option<Tensor<'t, S>>,
    pub cos: Tensor<'t, S>,
    pub sin: Tensor<'t, S>,
}

/// q's result followed by k's; or, given the chain's results, a comparison with them.
pub fn run_rope<'t, P: Place<'t>>(
    place: &P,
    tensors: &RopeTensors<'t, P::Storage>,
    spec: &RopeSpec,
    inverse: bool,
    result: Option<Results<'t, P::Storage>>,
) -> Result<P::Storage, Refusal> {
    let q = operand(place, tensors.q)?;
    let k = tensors.k.map(|k| operand(place, k)).transpose()?;
    let (cos, sin) = (operand(place, tensors.cos)?, operand(place, tensors.sin)?);
    let reference = match result {
        None => None,
        Some((q, k)) => {
            let k = k.map(|k| operand(place, k)).transpose()?;
            Some(rope_reference(operand(place, q)?, k, spec.axes)?)
        }
    };
    let len = q.layout.shape().elem_count() + k.map_or(0, |k| k.layout.shape().elem_count());
    place.filled(tensors.q.0, len, |out| {
        let mut call = rope(&RopeOperands { q, k, cos, sin }, out, spec, inverse)?;
        match &reference {
            None => served(place.run_rope(&mut call)?),
            Some(reference) => {
                place.verify_rope(&call, reference)?;
                Ok(())
            }
        }
    })
}

/// Only a call that was served has written its output.
pub fn served(answer: Answer) -> Result<(), Refusal> {
    match answer {
        Answer::Served => Ok(()),
        other => Err(Refusal::Gate(other)),
    }
}

struct Axis {
    size: usize,
    /// One for each tensor of the call.
    strides: Vec<isize>,
}

/// The axes of tensors of one shape, with neighbours joined wherever all of them allow it.
fn joined(layouts: &[&Layout]) -> Vec<Axis> {
    let mut axes: Vec<Axis> = Vec::new();
    for (axis, &size) in layouts[0].dims().iter().enumerate() {
        let strides: Vec<isize> = layouts.iter().map(|layout| layout.stride()[axis] as isize).collect();
        if size == 1 {
            continue;
        }
        match axes.last_mut() {
            Some(last) if last.strides.iter().zip(&strides).all(|(a, b)| *a == b * size as isize) => {
                last.size *= size;
                last.strides = strides;
            }
            _ => axes.push(Axis { size, strides }),
        }
    }
    if axes.is_empty() {
        axes.push(Axis { size: 1, strides: vec![1; layouts.len()] });
    }
    axes
}

/// `gate` and `up` of one shape; `out` is dense in that shape.
fn silu_mul<'a, M: Memory>(
    gate: Operand<'_>,
    up: Operand<'_>,
    out: Allocation,
    silu: Silu,
) -> Result<SiluMul<'a, M>, Refusal> {
    let dense = Layout::contiguous(gate.layout.shape());
    let axes = joined(&[gate.layout, up.layout, &dense]);
    let shape: Vec<usize> = axes.iter().map(|axis| axis.size).collect();
    let strides = |tensor: usize| axes.iter().map(|axis| axis.strides[tensor]).collect::<Vec<_>>();
    let view = |operand: Operand<'_>, tensor| {
        let Allocation { address, len, dtype } = operand.allocation;
        // SAFETY: the storage lives while its guard is held, which the callers of this module do.
        unsafe {
            View::from_raw(address, len, dtype, operand.layout.start_offset(), &shape, &strides(tensor))
        }
    };
    // SAFETY: the output was allocated for this call alone.
    let output = unsafe { ViewMut::from_raw(out.address, out.len, out.dtype, 0, &shape, &strides(2)) }?;
    Ok(SiluMul::new(view(gate, 0)?, view(up, 1)?, output)?.silu(silu))
}

/// A dense tensor of the call's shape, or any other that joins to its axes.
fn silu_mul_reference<'a, M: Memory>(
    gate: &Layout,
    up: &Layout,
    result: Operand<'_>,
) -> Result<SiluMulReference<'a, M>, Refusal> {
    let axes = joined(&[gate, up, result.layout]);
    let shape: Vec<usize> = axes.iter().map(|axis| axis.size).collect();
    let strides: Vec<isize> = axes.iter().map(|axis| axis.strides[2]).collect();
    let Allocation { address, len, dtype } = result.allocation;
    // SAFETY: as in `silu_mul`.
    let out = unsafe { View::from_raw(address, len, dtype, result.layout.start_offset(), &shape, &strides) }?;
    Ok(SiluMulReference { out })
}

fn strides(layout: &Layout) -> Vec<isize> {
    layout.stride().iter().map(|&stride| stride as isize).collect()
}

fn view<'a, M: Memory>(operand: Operand<'_>) -> Result<View<'a, M>, Refusal> {
    let (Allocation { address, len, dtype }, layout) = (operand.allocation, operand.layout);
    // SAFETY: as in `silu_mul`.
    Ok(unsafe {
        View::from_raw(address, len, dtype, layout.start_offset(), layout.dims(), &strides(layout))
    }?)
}

/// Tokens before heads, as the library has it.
fn heads<'a, M: Memory>(operand: Operand<'_>, axes: Axes) -> Result<View<'a, M>, Refusal> {
    let view = view(operand)?;
    if operand.layout.dims().len() == 4 && axes == Axes::HeadsFirst {
        return Ok(view.transpose(1, 2));
    }
    Ok(view)
}

struct RopeOperands<'l> {
    q: Operand<'l>,
    k: Option<Operand<'l>>,
    cos: Operand<'l>,
    sin: Operand<'l>,
}

/// `out` holds q's result and then k's, both dense.
fn rope<'a, M: Memory>(
    operands: &RopeOperands<'_>,
    out: Allocation,
    spec: &RopeSpec,
    inverse: bool,
) -> Result<Rope<'a, M>, Refusal> {
    let output = |input: Operand<'_>, offset: usize| -> Result<ViewMut<'a, M>, Refusal> {
        let dense = Layout::contiguous(input.layout.shape());
        // SAFETY: the output was allocated for this call alone, and q and k get parts of their own.
        let view = unsafe {
            ViewMut::from_raw(out.address, out.len, out.dtype, offset, dense.dims(), &strides(&dense))
        }?;
        Ok(if spec.axes == Axes::HeadsFirst { view.transpose(1, 2) } else { view })
    };
    let RopeOperands { q, k, cos, sin } = operands;
    if q.layout.dims().len() != 4 || k.is_some_and(|k| k.layout.dims().len() != 4) {
        return Err(Refusal::Other("q or k has not four axes".to_owned()));
    }
    let input = (heads(*q, spec.axes)?, output(*q, 0)?);
    let (cos, sin) = (heads(*cos, spec.axes)?, heads(*sin, spec.axes)?);
    let mut call = Rope::new(input, cos, sin, spec.width)?;
    if let Some(k) = k {
        call = call.with_k((heads(*k, spec.axes)?, output(*k, q.layout.shape().elem_count())?))?;
    }
    Ok(call.pairing(spec.pairing).compute(Compute::Eager).inverse(inverse))
}

fn rope_reference<'a, M: Memory>(
    q: Operand<'_>,
    k: Option<Operand<'_>>,
    axes: Axes,
) -> Result<RopeReference<'a, M>, Refusal> {
    Ok(RopeReference { q: heads(q, axes)?, k: k.map(|k| heads(k, axes)).transpose()? })
}

/// The two halves of the last axis, as layouts of the packed tensor.
pub fn halves(packed: &Layout) -> Result<(Layout, Layout), Refusal> {
    let refused = || Refusal::Other(format!("{:?} has no two halves", packed.shape()));
    let axis = packed.dims().len().checked_sub(1).ok_or_else(refused)?;
    let size = packed.dims()[axis];
    if !size.is_multiple_of(2) {
        return Err(refused());
    }
    let half = |start| packed.narrow(axis, start, size / 2).map_err(|_| refused());
    Ok((half(0)?, half(size / 2)?))
}
