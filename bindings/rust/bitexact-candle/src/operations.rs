//! The public functions, as operations in candle's graph.
use std::sync::{Arc, OnceLock};

use bitexact::{Answer, TableWidth};
#[cfg(feature = "cuda")]
use candle_core::backend::BackendDevice;
use candle_core::backend::BackendStorage;
#[cfg(feature = "cuda")]
use candle_core::CudaStorage;
use candle_core::{
    CpuStorage, CustomOp1, CustomOp2, DeviceLocation, Layout, Result, Shape, Storage, Tensor, Var,
};

use crate::call::{halves, run_rope, run_silu_mul, Results, RopeTensors};
use crate::chain;
use crate::choice;
#[cfg(feature = "cuda")]
use crate::cuda::CudaPlace;
use crate::fallback::{count, Refusal};
use crate::host::HostPlace;
use crate::{Numerics, RopeSpec};

/// Where an operation leaves the reason for not having run.
type Refused = Arc<OnceLock<Refusal>>;

/// Passes a result on to candle and keeps the reason of a refusal.
fn keep<S>(result: std::result::Result<S, Refusal>, refused: &Refused) -> Result<S> {
    result.map_err(|refusal| {
        let error = candle_core::Error::wrap(refusal.clone());
        let _ = refused.set(refusal);
        error
    })
}

/// The protocol of the gate: the fused result if it is served; else the chain's, which after a first use is
/// compared with the fused one by `verify`. Errors that are no refusal are candle's and stay.
fn served_or_chain<T>(
    name: &'static str,
    fused: impl FnOnce(Refused) -> Result<T>,
    chain: impl FnOnce() -> Result<T>,
    verify: impl FnOnce(&T) -> std::result::Result<(), Refusal>,
) -> Result<T> {
    let refused = Refused::default();
    let error = match fused(refused.clone()) {
        Ok(result) => return Ok(result),
        Err(error) => error,
    };
    let Some(refusal) = refused.get() else { return Err(error) };
    count(name, refusal);
    let result = chain()?;
    if *refusal == Refusal::Gate(Answer::Unverified) {
        if let Err(refusal) = verify(&result) {
            count(name, &refusal);
        }
    }
    Ok(result)
}

/// Gradients of a chain with respect to its arguments.
fn gradients<const N: usize>(
    arguments: [&Tensor; N],
    gradient: &Tensor,
    chain: impl FnOnce([&Tensor; N]) -> Result<Tensor>,
) -> Result<[Option<Tensor>; N]> {
    let variables = arguments.map(|argument| Var::from_tensor(&argument.detach()));
    let variables = variables.into_iter().collect::<Result<Vec<Var>>>()?;
    let result = chain(std::array::from_fn(|i| variables[i].as_tensor()))?;
    let store = (result * gradient)?.sum_all()?.backward()?;
    Ok(std::array::from_fn(|i| store.get(&variables[i]).cloned()))
}

type Outcome<S> = std::result::Result<S, Refusal>;

fn on_cpu(storage: &Storage) -> Outcome<&CpuStorage> {
    match storage {
        Storage::Cpu(storage) => Ok(storage),
        _ => Err(Refusal::Other("the tensors are on different devices".to_owned())),
    }
}

#[cfg(feature = "cuda")]
fn on_cuda(storage: &Storage) -> Outcome<&CudaStorage> {
    match storage {
        Storage::Cuda(storage) => Ok(storage),
        _ => Err(Refusal::Other("the tensors are on different devices".to_owned())),
    }
}

/// Runs `$body` with a place for the device of `$storage`.
#[cfg(feature = "cuda")]
macro_rules! with_cuda_place {
    ($place:ident = $storage:expr, $body:expr) => {{
        let device = $storage.device();
        let stream = device.cuda_stream();
        let $place = CudaPlace::new(device, &stream)?;
        $body
    }};
}

// ---------------------------------------------------------------------------------- silu_mul --

/// `silu(gate) * up`, for tensors of one shape.
///
/// # Errors
/// As candle's `gate.silu()? * up`.
pub fn silu_mul(gate: &Tensor, up: &Tensor, numerics: Numerics) -> Result<Tensor> {
    served_or_chain(
        "silu_mul",
        |refused| gate.apply_op2(up, SiluMulOp { numerics, refused }),
        || chain::silu_mul(gate, up, numerics),
        |result| verify_silu_mul(gate, up, numerics, result),
    )
}

/// `silu(first half) * second half` of the last axis. Neither half is copied.
///
/// # Errors
/// As `candle_nn::ops::swiglu`.
pub fn swiglu(packed: &Tensor, numerics: Numerics) -> Result<Tensor> {
    served_or_chain(
        "swiglu",
        |refused| packed.apply_op1(SwigluOp { numerics, refused }),
        || chain::swiglu(packed, numerics),
        |result| match packed.chunk(2, candle_core::D::Minus1) {
            Ok(parts) if parts.len() == 2 => verify_silu_mul(&parts[0], &parts[1], numerics, result),
            _ => Ok(()),
        },
    )
}

fn verify_silu_mul(gate: &Tensor, up: &Tensor, numerics: Numerics, result: &Tensor) -> Outcome<()> {
    choice::find(numerics, gate.dtype(), gate.device()).map_err(|error| Refusal::Other(error.to_string()))?;
    let silu = choice::silu(numerics, gate.dtype(), gate.device().location())?;
    let ((gate, gate_layout), (up, up_layout)) = (gate.storage_and_layout(), up.storage_and_layout());
    let (result, result_layout) = result.storage_and_layout();
    match &*gate {
        Storage::Cpu(gate) => {
            let (gate, up) = ((gate, gate_layout), (on_cpu(&up)?, up_layout));
            let result = Some((on_cpu(&result)?, result_layout));
            run_silu_mul(&HostPlace::new()?, gate, up, silu, result).map(drop)
        }
        #[cfg(feature = "cuda")]
        Storage::Cuda(gate) => with_cuda_place!(place = gate, {
            let (gate, up) = ((gate, gate_layout), (on_cuda(&up)?, up_layout));
            let result = Some((on_cuda(&result)?, result_layout));
            run_silu_mul(&place, gate, up, silu, result).map(drop)
        }),
        _ => Ok(()),
    }
}

fn same_shape(gate: &Layout, up: &Layout) -> Outcome<()> {
    if gate.shape() == up.shape() {
        return Ok(());
    }
    Err(Refusal::Other(format!("gate has shape {:?}, up {:?}", gate.shape(), up.shape())))
}

struct SiluMulOp {
    numerics: Numerics,
    refused: Refused,
}

impl CustomOp2 for SiluMulOp {
    fn name(&self) -> &'static str {
        "bitexact-silu-mul"
    }

    fn cpu_fwd(
        &self,
        s1: &CpuStorage,
        l1: &Layout,
        s2: &CpuStorage,
        l2: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        let run = || {
            same_shape(l1, l2)?;
            let silu = choice::silu(self.numerics, s1.dtype(), DeviceLocation::Cpu)?;
            run_silu_mul(&HostPlace::new()?, (s1, l1), (s2, l2), silu, None)
        };
        Ok((keep(run(), &self.refused)?, l1.shape().clone()))
    }

    #[cfg(feature = "cuda")]
    fn cuda_fwd(
        &self,
        s1: &CudaStorage,
        l1: &Layout,
        s2: &CudaStorage,
        l2: &Layout,
    ) -> Result<(CudaStorage, Shape)> {
        let run = || {
            same_shape(l1, l2)?;
            let silu = choice::silu(self.numerics, s1.dtype(), s1.device().location())?;
            with_cuda_place!(place = s1, run_silu_mul(&place, (s1, l1), (s2, l2), silu, None))
        };
        Ok((keep(run(), &self.refused)?, l1.shape().clone()))
    }

    fn bwd(
        &self,
        gate: &Tensor,
        up: &Tensor,
        _: &Tensor,
        gradient: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>)> {
        let numerics = self.numerics;
        let [gate, up] = gradients([gate, up], gradient, |[gate, up]| chain::silu_mul(gate, up, numerics))?;
        Ok((gate, up))
    }
}

struct SwigluOp {
    numerics: Numerics,
    refused: Refused,
}

impl SwigluOp {
    fn shape(half: &Layout) -> Shape {
        half.shape().clone()
    }
}

impl CustomOp1 for SwigluOp {
    fn name(&self) -> &'static str {
        "bitexact-swiglu"
    }

    fn cpu_fwd(&self, storage: &CpuStorage, layout: &Layout) -> Result<(CpuStorage, Shape)> {
        let run = || {
            let (gate, up) = halves(layout)?;
            let silu = choice::silu(self.numerics, storage.dtype(), DeviceLocation::Cpu)?;
            let result = run_silu_mul(&HostPlace::new()?, (storage, &gate), (storage, &up), silu, None)?;
            Ok((result, SwigluOp::shape(&gate)))
        };
        keep(run(), &self.refused)
    }

    #[cfg(feature = "cuda")]
    fn cuda_fwd(&self, storage: &CudaStorage, layout: &Layout) -> Result<(CudaStorage, Shape)> {
        let run = || {
            let (gate, up) = halves(layout)?;
            let silu = choice::silu(self.numerics, storage.dtype(), storage.device().location())?;
            let result = with_cuda_place!(
                place = storage,
                run_silu_mul(&place, (storage, &gate), (storage, &up), silu, None)
            )?;
            Ok((result, SwigluOp::shape(&gate)))
        };
        keep(run(), &self.refused)
    }

    fn bwd(&self, packed: &Tensor, _: &Tensor, gradient: &Tensor) -> Result<Option<Tensor>> {
        let numerics = self.numerics;
        let [packed] = gradients([packed], gradient, |[packed]| chain::swiglu(packed, numerics))?;
        Ok(packed)
    }
}

// -------------------------------------------------------------------------------------- rope --

/// Rotates one tensor.
///
/// # Errors
/// As the chain of candle operators: shapes or dtypes that do not fit each other.
pub fn rope(x: &Tensor, cos: &Tensor, sin: &Tensor, spec: &RopeSpec) -> Result<Tensor> {
    rotate(x, cos, sin, spec, false)
}

fn rotate(x: &Tensor, cos: &Tensor, sin: &Tensor, spec: &RopeSpec, inverse: bool) -> Result<Tensor> {
    let chain = || chain::rope(x, cos, sin, spec, inverse);
    if cos.track_op() || sin.track_op() {
        count("rope", &Refusal::Other(TABLES_LEARN.to_owned()));
        return chain();
    }
    let op = |refused| RopeOp { spec: *spec, inverse, cos: cos.clone(), sin: sin.clone(), refused };
    served_or_chain(
        "rope",
        |refused| x.apply_op1(op(refused)),
        chain,
        |result| op(Refused::default()).verify(x, None, result, None),
    )
}

/// Rotates q and k in one launch. Head counts may differ.
///
/// # Errors
/// As [`rope`].
pub fn rope_qk(
    q: &Tensor,
    k: &Tensor,
    cos: &Tensor,
    sin: &Tensor,
    spec: &RopeSpec,
) -> Result<(Tensor, Tensor)> {
    let chain = || Ok((chain::rope(q, cos, sin, spec, false)?, chain::rope(k, cos, sin, spec, false)?));
    if cos.track_op() || sin.track_op() {
        count("rope_qk", &Refusal::Other(TABLES_LEARN.to_owned()));
        return chain();
    }
    let op = |refused| RopeOp { spec: *spec, inverse: false, cos: cos.clone(), sin: sin.clone(), refused };
    served_or_chain(
        "rope_qk",
        |refused| {
            let both = q.apply_op2(k, op(refused))?;
            split(&both, q, k)
        },
        chain,
        |(q_result, k_result)| op(Refused::default()).verify(q, Some(k), q_result, Some(k_result)),
    )
}

const TABLES_LEARN: &str = "cos or sin takes part in the gradient";

/// The parts for q and k of one dense result, as views.
fn split(both: &Tensor, q: &Tensor, k: &Tensor) -> Result<(Tensor, Tensor)> {
    let (q_len, k_len) = (q.elem_count(), k.elem_count());
    Ok((both.narrow(0, 0, q_len)?.reshape(q.shape())?, both.narrow(0, q_len, k_len)?.reshape(k.shape())?))
}

struct RopeOp {
    spec: RopeSpec,
    inverse: bool,
    cos: Tensor,
    sin: Tensor,
    refused: Refused,
}

impl RopeOp {
    fn cpu(
        &self,
        q: (&CpuStorage, &Layout),
        k: Option<(&CpuStorage, &Layout)>,
        result: Option<Results<'_, CpuStorage>>,
    ) -> Outcome<CpuStorage> {
        let ((cos, cos_layout), (sin, sin_layout)) =
            (self.cos.storage_and_layout(), self.sin.storage_and_layout());
        let (cos, sin) = ((on_cpu(&cos)?, cos_layout), (on_cpu(&sin)?, sin_layout));
        run_rope(&HostPlace::new()?, &RopeTensors { q, k, cos, sin }, &self.spec, self.inverse, result)
    }

    #[cfg(feature = "cuda")]
    fn cuda(
        &self,
        q: (&CudaStorage, &Layout),
        k: Option<(&CudaStorage, &Layout)>,
        result: Option<Results<'_, CudaStorage>>,
    ) -> Outcome<CudaStorage> {
        let ((cos, cos_layout), (sin, sin_layout)) =
            (self.cos.storage_and_layout(), self.sin.storage_and_layout());
        let (cos, sin) = ((on_cuda(&cos)?, cos_layout), (on_cuda(&sin)?, sin_layout));
        with_cuda_place!(
            place = q.0,
            run_rope(&place, &RopeTensors { q, k, cos, sin }, &self.spec, self.inverse, result)
        )
    }

    fn verify(
        &self,
        q: &Tensor,
        k: Option<&Tensor>,
        q_result: &Tensor,
        k_result: Option<&Tensor>,
    ) -> Outcome<()> {
        let (q, q_layout) = q.storage_and_layout();
        let (result, result_layout) = q_result.storage_and_layout();
        let k = k.map(Tensor::storage_and_layout);
        let k_result = k_result.map(Tensor::storage_and_layout);
        macro_rules! verify {
            ($run:ident, $of:ident, $q:expr) => {{
                let results = ($of(&result)?, result_layout);
                let k = match &k {
                    Some((storage, layout)) => Some(($of(storage)?, *layout)),
                    None => None,
                };
                let k_results = match &k_result {
                    Some((storage, layout)) => Some(($of(storage)?, *layout)),
                    None => None,
                };
                self.$run(($q, q_layout), k, Some((results, k_results))).map(drop)
            }};
        }
        match &*q {
            Storage::Cpu(q) => verify!(cpu, on_cpu, q),
            #[cfg(feature = "cuda")]
            Storage::Cuda(q) => verify!(cuda, on_cuda, q),
            _ => Ok(()),
        }
    }

    /// The gradient of a rotation is the rotation backwards; where the two entries of a pair may differ it is
    /// the chain's own.
    fn gradient(&self, x: &Tensor, gradient: &Tensor) -> Result<Option<Tensor>> {
        if self.spec.width == TableWidth::Half {
            return rotate(gradient, &self.cos, &self.sin, &self.spec, !self.inverse).map(Some);
        }
        let [x] =
            gradients([x], gradient, |[x]| chain::rope(x, &self.cos, &self.sin, &self.spec, self.inverse))?;
        Ok(x)
    }
}

impl CustomOp1 for RopeOp {
    fn name(&self) -> &'static str {
        "bitexact-rope"
    }

    fn cpu_fwd(&self, storage: &CpuStorage, layout: &Layout) -> Result<(CpuStorage, Shape)> {
        Ok((keep(self.cpu((storage, layout), None, None), &self.refused)?, layout.shape().clone()))
    }

    #[cfg(feature = "cuda")]
    fn cuda_fwd(&self, storage: &CudaStorage, layout: &Layout) -> Result<(CudaStorage, Shape)> {
        Ok((keep(self.cuda((storage, layout), None, None), &self.refused)?, layout.shape().clone()))
    }

    fn bwd(&self, x: &Tensor, _: &Tensor, gradient: &Tensor) -> Result<Option<Tensor>> {
        self.gradient(x, gradient)
    }
}

/// q and k; the result is flat, q's and then k's.
impl CustomOp2 for RopeOp {
    fn name(&self) -> &'static str {
        "bitexact-rope-qk"
    }

    fn cpu_fwd(
        &self,
        s1: &CpuStorage,
        l1: &Layout,
        s2: &CpuStorage,
        l2: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        let len = l1.shape().elem_count() + l2.shape().elem_count();
        Ok((keep(self.cpu((s1, l1), Some((s2, l2)), None), &self.refused)?, Shape::from(len)))
    }

    #[cfg(feature = "cuda")]
    fn cuda_fwd(
        &self,
        s1: &CudaStorage,
        l1: &Layout,
        s2: &CudaStorage,
        l2: &Layout,
    ) -> Result<(CudaStorage, Shape)> {
        let len = l1.shape().elem_count() + l2.shape().elem_count();
        Ok((keep(self.cuda((s1, l1), Some((s2, l2)), None), &self.refused)?, Shape::from(len)))
    }

    fn bwd(
        &self,
        q: &Tensor,
        k: &Tensor,
        _: &Tensor,
        gradient: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>)> {
        let (q_gradient, k_gradient) = split(gradient, q, k)?;
        Ok((self.gradient(q, &q_gradient)?, self.gradient(k, &k_gradient)?))
    }
}
