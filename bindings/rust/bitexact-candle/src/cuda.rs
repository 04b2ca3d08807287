//! The library on candle's CUDA storage.
use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::{Arc, Mutex};

use bitexact::{
    Answer, Context, Device, Error, Library, Options, Reference, Rope, RopeReference, SiluMul,
    SiluMulReference, Stream, Verdict,
};
use candle_core::backend::{BackendDevice, BackendStorage};
use candle_core::cuda_backend::cudarc::driver::{CudaStream, DevicePtr, DevicePtrMut, SyncOnDrop};
use candle_core::cuda_backend::CudaStorageSlice;
use candle_core::{CudaDevice, CudaStorage, DeviceLocation};

use crate::call::{self, Allocation, Place};
use crate::fallback::Refusal;

type Made = Result<Arc<Context<Device>>, Refusal>;

/// One context for each GPU, whatever number of candle devices stands for it.
pub fn context(device: &CudaDevice) -> Made {
    static CONTEXTS: Mutex<Option<HashMap<usize, Made>>> = Mutex::new(None);
    let DeviceLocation::Cuda { gpu_id } = device.location() else {
        return Err(Refusal::Other("not a CUDA device".to_owned()));
    };
    let make = || {
        let options = Options { reference: Reference::Caller, ..Options::default() };
        Ok(Arc::new(Library::linked()?.device_context(gpu_id as u32, options)?))
    };
    let mut contexts = CONTEXTS.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    contexts.get_or_insert_with(HashMap::new).entry(gpu_id).or_insert_with(make).clone()
}

/// A device, its stream, and the guards that order the stream after and before other uses of the tensors.
/// They are dropped with the place, after the launch.
pub struct CudaPlace<'t> {
    context: Arc<Context<Device>>,
    device: &'t CudaDevice,
    stream: &'t CudaStream,
    guards: RefCell<Vec<SyncOnDrop<'t>>>,
}

impl<'t> CudaPlace<'t> {
    pub fn new(device: &'t CudaDevice, stream: &'t CudaStream) -> Result<CudaPlace<'t>, Refusal> {
        Ok(CudaPlace { context: context(device)?, device, stream, guards: RefCell::default() })
    }

    fn raw_stream(&self) -> Stream<'_> {
        // SAFETY: the stream is borrowed for longer than the result. The handle may be the per-thread one,
        // and `Stream` stays on this thread.
        unsafe { Stream::from_raw(self.stream.cu_stream().cast()) }
    }
}

fn refusal(error: impl std::fmt::Display) -> Refusal {
    Refusal::Other(error.to_string())
}

impl<'t> Place<'t> for CudaPlace<'t> {
    type Memory = Device;
    type Storage = CudaStorage;

    fn allocation(&self, storage: &'t CudaStorage) -> Result<Allocation, Refusal> {
        let dtype = call::dtype(storage.dtype())?;
        macro_rules! whole {
            ($slice:expr) => {{
                let (address, guard) = $slice.device_ptr(self.stream);
                (address, $slice.len(), guard)
            }};
        }
        let (address, len, guard) = match &storage.slice {
            CudaStorageSlice::BF16(slice) => whole!(slice),
            CudaStorageSlice::F16(slice) => whole!(slice),
            CudaStorageSlice::F32(slice) => whole!(slice),
            CudaStorageSlice::F64(slice) => whole!(slice),
            _ => return Err(Refusal::Other(format!("no kernels for {:?}", storage.dtype()))),
        };
        self.guards.borrow_mut().push(guard);
        Ok(Allocation { address: address as *mut c_void, len, dtype })
    }

    fn filled(
        &self,
        like: &'t CudaStorage,
        len: usize,
        fill: impl FnOnce(Allocation) -> Result<(), Refusal>,
    ) -> Result<CudaStorage, Refusal> {
        let dtype = call::dtype(like.dtype())?;
        macro_rules! filled {
            ($variant:ident) => {{
                // SAFETY: every element is written by `fill`, or the storage is dropped.
                let mut slice = unsafe { self.device.alloc(len) }.map_err(refusal)?;
                {
                    let (address, _guard) = slice.device_ptr_mut(self.stream);
                    fill(Allocation { address: address as *mut c_void, len, dtype })?;
                }
                Ok(CudaStorage { slice: CudaStorageSlice::$variant(slice), device: self.device.clone() })
            }};
        }
        match &like.slice {
            CudaStorageSlice::BF16(_) => filled!(BF16),
            CudaStorageSlice::F16(_) => filled!(F16),
            CudaStorageSlice::F32(_) => filled!(F32),
            _ => Err(Refusal::Other(format!("no kernels for {:?}", like.dtype()))),
        }
    }

    fn run_rope(&self, call: &mut Rope<'_, Device>) -> Result<Answer, Error> {
        // SAFETY: the tensors live on the context's device; candle frees memory in stream order, and the
        // guards order other streams.
        unsafe { self.context.rope(call, self.raw_stream()) }
    }

    fn run_silu_mul(&self, call: &mut SiluMul<'_, Device>) -> Result<Answer, Error> {
        // SAFETY: as in `run_rope`.
        unsafe { self.context.silu_mul(call, self.raw_stream()) }
    }

    fn verify_rope(
        &self,
        call: &Rope<'_, Device>,
        reference: &RopeReference<'_, Device>,
    ) -> Result<Verdict, Error> {
        // SAFETY: as in `run_rope`.
        unsafe { self.context.rope_verify(call, reference, self.raw_stream()) }
    }

    fn verify_silu_mul(
        &self,
        call: &SiluMul<'_, Device>,
        reference: &SiluMulReference<'_, Device>,
    ) -> Result<Verdict, Error> {
        // SAFETY: as in `run_rope`.
        unsafe { self.context.silu_mul_verify(call, reference, self.raw_stream()) }
    }
}
