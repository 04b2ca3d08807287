//! The chains of candle operators that are the truth.
use candle_core::{bail, DType, Result, Tensor, D};

use crate::{Axes, Numerics, Pairing, RopeSpec, TableWidth};

pub fn silu_mul(gate: &Tensor, up: &Tensor, numerics: Numerics) -> Result<Tensor> {
    let activated = match numerics {
        Numerics::Candle => gate.silu()?,
        Numerics::Torch => gate.to_dtype(DType::F32)?.silu()?.to_dtype(gate.dtype())?,
    };
    activated * up
}

pub fn swiglu(packed: &Tensor, numerics: Numerics) -> Result<Tensor> {
    match packed.chunk(2, D::Minus1)?.as_slice() {
        [gate, up] => silu_mul(gate, up, numerics),
        _ => bail!("swiglu needs two halves in the last axis of {:?}", packed.shape()),
    }
}

/// Elements of a head that rotate.
pub fn rotary_dim(cos: &Tensor, spec: &RopeSpec) -> Result<usize> {
    let width = cos.dim(D::Minus1)?;
    Ok(if spec.width == TableWidth::Half { 2 * width } else { width })
}

/// A table as (batch or 1, tokens, heads or 1, width), in the order of q's axes, cut to q's tokens.
fn broadcastable(table: &Tensor, tokens: usize, axes: Axes) -> Result<Tensor> {
    let (token_axis, head_axis) = if axes == Axes::HeadsFirst { (2, 1) } else { (1, 2) };
    let table = match table.rank() {
        2 => table.unsqueeze(0)?.unsqueeze(head_axis)?,
        3 => table.unsqueeze(head_axis)?,
        4 => table.clone(),
        rank => bail!("a table has {rank} axes; accepted: 2 to 4"),
    };
    table.narrow(token_axis, 0, tokens)
}

pub fn rope(x: &Tensor, cos: &Tensor, sin: &Tensor, spec: &RopeSpec, inverse: bool) -> Result<Tensor> {
    let tokens = x.dim(if spec.axes == Axes::HeadsFirst { 2 } else { 1 })?;
    let (rotary, head_dim) = (rotary_dim(cos, spec)?, x.dim(D::Minus1)?);
    if x.rank() != 4 || rotary > head_dim || rotary % 2 != 0 {
        bail!("a table of {:?} does not fit {:?}; accepted: four axes and an even part of the last", cos, x);
    }
    let cos = broadcastable(cos, tokens, spec.axes)?;
    let sin = broadcastable(sin, tokens, spec.axes)?;
    let sin = if inverse { sin.neg()? } else { sin };
    let head = x.narrow(D::Minus1, 0, rotary)?;
    let rotated = if cos.dtype() == DType::F32 && x.dtype() != DType::F32 {
        rotate(&head.to_dtype(DType::F32)?, &cos, &sin, spec)?.to_dtype(x.dtype())?
    } else {
        rotate(&head, &cos, &sin, spec)?
    };
    if rotary == head_dim {
        return Ok(rotated);
    }
    Tensor::cat(&[rotated, x.narrow(D::Minus1, rotary, head_dim - rotary)?], D::Minus1)
}

/// Every product and sum as an operator of its own.
fn rotate(x: &Tensor, cos: &Tensor, sin: &Tensor, spec: &RopeSpec) -> Result<Tensor> {
    let half = x.dim(D::Minus1)? / 2;
    // Entries for the first and the second element of a pair.
    let entries = |table: &Tensor| match (spec.width, spec.pairing) {
        (TableWidth::Half, _) => Ok((table.clone(), table.clone())),
        (TableWidth::Full, _) => pairs(table, half, spec.pairing),
    };
    let ((c1, c2), (s1, s2)) = (entries(cos)?, entries(sin)?);
    let (x1, x2) = pairs(x, half, spec.pairing)?;
    let y1 = (x1.broadcast_mul(&c1)? - x2.broadcast_mul(&s1)?)?;
    let y2 = (x2.broadcast_mul(&c2)? + x1.broadcast_mul(&s2)?)?;
    match spec.pairing {
        Pairing::Half => Tensor::cat(&[y1, y2], D::Minus1),
        Pairing::Interleaved => Tensor::stack(&[y1, y2], D::Minus1)?.flatten_from(D::Minus2),
    }
}

/// The first and the second elements of all pairs in the last axis.
fn pairs(x: &Tensor, half: usize, pairing: Pairing) -> Result<(Tensor, Tensor)> {
    match pairing {
        Pairing::Half => Ok((x.narrow(D::Minus1, 0, half)?, x.narrow(D::Minus1, half, half)?)),
        Pairing::Interleaved => {
            let mut dims = x.dims().to_vec();
            dims.pop();
            dims.extend([half, 2]);
            let x = x.reshape(dims)?;
            let at = |index| x.narrow(D::Minus1, index, 1)?.squeeze(D::Minus1);
            Ok((at(0)?, at(1)?))
        }
    }
}
