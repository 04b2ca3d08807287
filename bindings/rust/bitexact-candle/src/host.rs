//! The library on candle's CPU storage.
use std::ffi::c_void;
use std::sync::OnceLock;

use bitexact::{
    Answer, Context, DType, Error, Host, Library, Options, Reference, Rope, RopeReference, SiluMul,
    SiluMulReference, Verdict,
};
use candle_core::backend::BackendStorage;
use candle_core::CpuStorage;

use crate::call::{self, Allocation, Place};
use crate::fallback::Refusal;

/// One context for the process: all CPU tensors are in one place.
pub fn context() -> Result<&'static Context<Host>, Refusal> {
    static CONTEXT: OnceLock<Result<Context<Host>, Refusal>> = OnceLock::new();
    let make = || {
        let options = Options { reference: Reference::Caller, ..Options::default() };
        Ok(Library::linked()?.host_context(options)?)
    };
    CONTEXT.get_or_init(make).as_ref().map_err(Clone::clone)
}

pub struct HostPlace(&'static Context<Host>);

impl HostPlace {
    pub fn new() -> Result<HostPlace, Refusal> {
        context().map(HostPlace)
    }
}

impl<'t> Place<'t> for HostPlace {
    type Memory = Host;
    type Storage = CpuStorage;

    fn allocation(&self, storage: &'t CpuStorage) -> Result<Allocation, Refusal> {
        fn whole<T>(values: &[T]) -> (*mut c_void, usize) {
            (values.as_ptr().cast_mut().cast(), values.len())
        }
        let dtype = call::dtype(storage.dtype())?;
        let (address, len) = match storage {
            CpuStorage::BF16(values) => whole(values),
            CpuStorage::F16(values) => whole(values),
            CpuStorage::F32(values) => whole(values),
            CpuStorage::F64(values) => whole(values),
            other => return Err(Refusal::Other(format!("no kernels for {:?}", other.dtype()))),
        };
        Ok(Allocation { address, len, dtype })
    }

    fn filled(
        &self,
        like: &'t CpuStorage,
        len: usize,
        fill: impl FnOnce(Allocation) -> Result<(), Refusal>,
    ) -> Result<CpuStorage, Refusal> {
        fn vector<T: Clone + Default>(
            wrap: fn(Vec<T>) -> CpuStorage,
            len: usize,
            dtype: DType,
            fill: impl FnOnce(Allocation) -> Result<(), Refusal>,
        ) -> Result<CpuStorage, Refusal> {
            let mut values = vec![T::default(); len];
            fill(Allocation { address: values.as_mut_ptr().cast(), len, dtype })?;
            Ok(wrap(values))
        }
        let dtype = call::dtype(like.dtype())?;
        match like {
            CpuStorage::BF16(_) => vector(CpuStorage::BF16, len, dtype, fill),
            CpuStorage::F16(_) => vector(CpuStorage::F16, len, dtype, fill),
            CpuStorage::F32(_) => vector(CpuStorage::F32, len, dtype, fill),
            other => Err(Refusal::Other(format!("no kernels for {:?}", other.dtype()))),
        }
    }

    fn run_rope(&self, call: &mut Rope<'_, Host>) -> Result<Answer, Error> {
        self.0.rope(call)
    }

    fn run_silu_mul(&self, call: &mut SiluMul<'_, Host>) -> Result<Answer, Error> {
        self.0.silu_mul(call)
    }

    fn verify_rope(
        &self,
        call: &Rope<'_, Host>,
        reference: &RopeReference<'_, Host>,
    ) -> Result<Verdict, Error> {
        self.0.rope_verify(call, reference)
    }

    fn verify_silu_mul(
        &self,
        call: &SiluMul<'_, Host>,
        reference: &SiluMulReference<'_, Host>,
    ) -> Result<Verdict, Error> {
        self.0.silu_mul_verify(call, reference)
    }
}
