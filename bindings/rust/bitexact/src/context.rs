//! Contexts: the verdicts of one device, the gate's protocol, and the operations.
use std::ffi::{c_char, c_void};
use std::marker::PhantomData;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::ptr::NonNull;

use bitexact_sys as sys;

use crate::library::{call, text};
use crate::report::{Certificate, GateReport, Image};
use crate::{Device, Error, Host, Library, Memory, Rope, RopeReference, SiluMul, SiluMulReference, Stream};

/// When the gate checks. The environment variable `BITEXACT_GATE` overrules it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Policy {
    /// Check at first use, keep the verdict.
    #[default]
    Verify,
    /// Never fuse: the off switch.
    Reference,
    /// Fuse without a check.
    Trust,
    /// Check every call; for debugging.
    Audit,
    /// As [`Policy::Verify`], but a decline is [`Answer::Declined`] in both reference modes; for CI.
    Strict,
}

impl Policy {
    fn code(self) -> i32 {
        match self {
            Policy::Verify => sys::BITEXACT_POLICY_VERIFY,
            Policy::Reference => sys::BITEXACT_POLICY_REFERENCE,
            Policy::Trust => sys::BITEXACT_POLICY_TRUST,
            Policy::Audit => sys::BITEXACT_POLICY_AUDIT,
            Policy::Strict => sys::BITEXACT_POLICY_STRICT,
        }
    }

    fn from_code(code: i32) -> Option<Policy> {
        [Policy::Verify, Policy::Reference, Policy::Trust, Policy::Audit, Policy::Strict]
            .into_iter()
            .find(|policy| policy.code() == code)
    }
}

/// Whose result is the truth.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Reference {
    /// The library's own reference kernels. Every call delivers the contract's bits.
    #[default]
    Builtin,
    /// The runtime's own eager result, handed to `..._verify`.
    Caller,
}

/// Options of a context.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Options {
    /// When the gate checks.
    pub policy: Policy,
    /// Whose result is the truth.
    pub reference: Reference,
}

/// What became of a call. All of these are normal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[must_use = "unless it is `Served`, the output was not written"]
pub enum Answer {
    /// The output holds the bits: on a device in stream order, on the host now.
    Served,
    /// [`Reference::Caller`], undecided: run your own chain, then verify. Nothing was enqueued.
    Unverified,
    /// Not proven equal, for good: run your own chain. Nothing was enqueued.
    Declined,
    /// Undecided, and the stream is capturing: run your own chain. Nothing was enqueued.
    Capturing,
}

/// The gate's state for one kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// Not yet checked.
    Undecided,
    /// Served from now on.
    Accepted,
    /// Never served.
    Declined,
}

impl Verdict {
    pub(crate) fn from_code(code: i32) -> Verdict {
        match code {
            sys::BITEXACT_STATE_ACCEPTED => Verdict::Accepted,
            sys::BITEXACT_STATE_DECLINED => Verdict::Declined,
            _ => Verdict::Undecided,
        }
    }
}

/// How much a log line matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LogLevel {
    /// A decline.
    Warning,
    /// An acceptance.
    Info,
}

/// Facts about a context.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Info {
    /// CUDA ordinal; `None` for the host.
    pub device: Option<u32>,
    /// Name of the device.
    pub device_name: String,
    /// The policy in force, `BITEXACT_GATE` applied; `None` if this crate does not know it.
    pub policy: Option<Policy>,
    /// Whose result is the truth.
    pub reference: Reference,
    /// Compute capability, major * 10 + minor; 0 for the host.
    pub architecture: i32,
    /// What code runs; `None` if this crate does not know it.
    pub image: Option<Image>,
    /// Architecture that this code was compiled for; 0 for the host.
    pub image_architecture: i32,
    /// As `cudaDriverGetVersion` gives it; 0 for the host.
    pub driver_version: i32,
    /// Of the CUDA runtime inside the library; 0 in a host-only build.
    pub runtime_version: i32,
    /// (batch, token) pairs so far whose position lay outside the tables.
    pub position_errors: i64,
}

type LogFn = Box<dyn Fn(LogLevel, &str) + Send + Sync>;

/// The gate's verdicts for one device, and the operations on it. Cheap after the first on a device: make one
/// for each model or place of use, so that a site that names the wrong chain closes only its own gate.
///
/// All calls through `&self` may come from any thread at any time.
///
/// ```
/// fn needs_send_and_sync<T: Send + Sync>() {}
/// needs_send_and_sync::<bitexact::Context<bitexact::Device>>();
/// ```
pub struct Context<M: Memory> {
    library: Library,
    handle: NonNull<sys::bitexact_context>,
    /// What the library's log function points to.
    log: Option<Box<LogFn>>,
    memory: PhantomData<M>,
}

// SAFETY: the library allows every function behind `&self` from any thread, and those behind `&mut self` and
// `drop` while no other call uses the context, which is what exclusive access means.
unsafe impl<M: Memory> Send for Context<M> {}
// SAFETY: as above.
unsafe impl<M: Memory> Sync for Context<M> {}

impl<M: Memory> std::fmt::Debug for Context<M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Context").field("handle", &self.handle).finish_non_exhaustive()
    }
}

impl<M: Memory> Drop for Context<M> {
    fn drop(&mut self) {
        // SAFETY: the handle came from context_create and is given back once, before the log function.
        unsafe { call!(self.library, context_destroy(self.handle.as_ptr())) };
    }
}

impl<M: Memory> Context<M> {
    pub(crate) fn new(library: Library, device: i32, options: Options) -> Result<Self, Error> {
        let raw = sys::bitexact_context_options {
            struct_size: size_of::<sys::bitexact_context_options>() as u32,
            flags: 0,
            device,
            gate_policy: options.policy.code(),
            reference_mode: match options.reference {
                Reference::Builtin => sys::BITEXACT_REFERENCE_BUILTIN,
                Reference::Caller => sys::BITEXACT_REFERENCE_CALLER,
            },
            reserved: 0,
        };
        let mut handle = std::ptr::null_mut();
        // SAFETY: both pointers are valid for the call.
        library.check(unsafe { call!(library, context_create(&raw, &mut handle)) })?;
        let handle = NonNull::new(handle).expect("the library answers OK only with a context");
        Ok(Context { library, handle, log: None, memory: PhantomData })
    }

    /// The library that the context came from.
    pub fn library(&self) -> Library {
        self.library
    }

    /// The C context, for functions that this crate does not wrap. It lives as long as `self`.
    pub fn as_raw(&self) -> *mut sys::bitexact_context {
        self.handle.as_ptr()
    }

    /// Facts. Reads a counter from the device: not for hot paths.
    ///
    /// # Errors
    /// [`Error::Environment`] if the counter cannot be read.
    pub fn info(&self) -> Result<Info, Error> {
        let mut raw = std::mem::MaybeUninit::uninit();
        // SAFETY: context_info_init writes the whole struct.
        let mut raw = unsafe {
            call!(self.library, context_info_init(raw.as_mut_ptr()));
            raw.assume_init()
        };
        // SAFETY: a live context and a struct that the library has initialised.
        self.library.check(unsafe { call!(self.library, context_get_info(self.as_raw(), &mut raw)) })?;
        Ok(Info {
            device: u32::try_from(raw.device).ok(),
            // SAFETY: the name lives as long as the context and is copied here.
            device_name: unsafe { text(raw.device_name) }.to_owned(),
            policy: Policy::from_code(raw.gate_policy),
            reference: match raw.reference_mode {
                sys::BITEXACT_REFERENCE_CALLER => Reference::Caller,
                _ => Reference::Builtin,
            },
            architecture: raw.architecture,
            image: Image::from_code(raw.image),
            image_architecture: raw.image_architecture,
            driver_version: raw.driver_version,
            runtime_version: raw.runtime_version,
            position_errors: raw.position_errors,
        })
    }

    /// Sets the function that gets one line for each verdict; `None` stops it. It runs on whichever thread
    /// calls an operation and must not call back into the context. A panic inside it is swallowed.
    ///
    /// # Errors
    /// [`Error::Invalid`] only after a `fork()`.
    pub fn set_log<F>(&mut self, log: Option<F>) -> Result<(), Error>
    where
        F: Fn(LogLevel, &str) + Send + Sync + 'static,
    {
        let log: Option<Box<LogFn>> = log.map(|log| Box::new(Box::new(log) as LogFn));
        let (function, user): (sys::bitexact_log_fn, *mut c_void) = match &log {
            Some(log) => (Some(forward_log), std::ptr::from_ref::<LogFn>(log).cast_mut().cast()),
            None => (None, std::ptr::null_mut()),
        };
        // SAFETY: `user` points to the closure inside `log`, which `self` keeps until it is replaced here or
        // the context is destroyed.
        self.library.check(unsafe { call!(self.library, context_set_log(self.as_raw(), function, user)) })?;
        self.log = log;
        Ok(())
    }

    /// Decides by probe alone, ahead of a capture: the kernels that these two calls would use, or every
    /// kernel if both are `None`. With [`Reference::Caller`] only a decline is kept. Waits for the stream,
    /// which is ignored on the host.
    ///
    /// # Errors
    /// [`Error::Environment`] if the device fails or has no memory left; [`Error::Invalid`] as the calls.
    pub fn warm_up(
        &self,
        rope: Option<&Rope<'_, M>>,
        silu_mul: Option<&SiluMul<'_, M>>,
        stream: Stream<'_>,
    ) -> Result<Answer, Error> {
        let rope = rope.map_or(std::ptr::null(), |call| std::ptr::from_ref(call.params()));
        let silu_mul = silu_mul.map_or(std::ptr::null(), |call| std::ptr::from_ref(call.params()));
        // SAFETY: a live context; null params are accepted, and no tensor is touched.
        self.answer(unsafe {
            call!(self.library, gate_warm_up(self.as_raw(), rope, silu_mul, self.stream(stream)))
        })
    }

    /// Would this call be served? Checks all that the call checks, enqueues nothing, touches no tensor.
    ///
    /// # Errors
    /// As the call.
    pub fn can_use_rope(&self, call: &Rope<'_, M>) -> Result<Answer, Error> {
        // SAFETY: a live context, and no tensor is touched.
        self.answer(unsafe { call!(self.library, fused_rope_can_use(self.as_raw(), call.params())) })
    }

    /// As [`Context::can_use_rope`].
    ///
    /// # Errors
    /// As the call.
    pub fn can_use_silu_mul(&self, call: &SiluMul<'_, M>) -> Result<Answer, Error> {
        // SAFETY: a live context, and no tensor is touched.
        self.answer(unsafe { call!(self.library, fused_silu_mul_can_use(self.as_raw(), call.params())) })
    }

    /// The whole story of every kernel in the library, in the order of their indices.
    ///
    /// # Errors
    /// [`Error::Environment`] if the library fails.
    pub fn reports(&self) -> Result<Vec<GateReport>, Error> {
        let mut count = 0;
        // SAFETY: a live context and a valid place for the answer.
        self.library.check(unsafe { call!(self.library, gate_count(self.as_raw(), &mut count)) })?;
        (0..count).map(|index| self.report(index)).collect()
    }

    /// The story of one kernel.
    ///
    /// # Errors
    /// [`Error::Invalid`] for an index that is out of range.
    pub fn report(&self, index: i64) -> Result<GateReport, Error> {
        let mut raw = std::mem::MaybeUninit::uninit();
        // SAFETY: gate_report_init writes the whole struct.
        let mut raw = unsafe {
            call!(self.library, gate_report_init(raw.as_mut_ptr()));
            raw.assume_init()
        };
        // SAFETY: a live context and a struct that the library has initialised.
        self.library.check(unsafe { call!(self.library, gate_get(self.as_raw(), index, &mut raw)) })?;
        Ok(GateReport::from_sys(&raw))
    }

    /// Forgets every verdict and counter.
    ///
    /// # Errors
    /// [`Error::Environment`] if the library fails.
    pub fn reset(&mut self) -> Result<(), Error> {
        // SAFETY: a live context, and nobody else uses it.
        self.library.check(unsafe { call!(self.library, gate_reset(self.as_raw())) })
    }

    /// Sweeps parts of a kernel's whole input domain and adds to the certificate. Each part takes well under
    /// a second, so that a caller can show progress and stop in between.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for a kernel that the device has not; [`Error::Invalid`] for an unknown kernel, and
    /// unless `first_part` is the certificate's `parts_done`; [`Error::Environment`] if the device fails.
    pub fn certify(
        &self,
        kernel: i64,
        first_part: i64,
        parts: i64,
        certificate: &mut Certificate,
    ) -> Result<(), Error> {
        let params = sys::bitexact_certify_params {
            struct_size: size_of::<sys::bitexact_certify_params>() as u32,
            flags: 0,
            kernel_index: kernel,
            first_part,
            part_count: parts,
        };
        // SAFETY: a live context and two structs of the sizes that they name.
        self.library
            .check(unsafe { call!(self.library, certify(self.as_raw(), &params, certificate.as_sys())) })
    }

    fn answer(&self, status: i32) -> Result<Answer, Error> {
        match status {
            sys::BITEXACT_STATUS_UNVERIFIED => Ok(Answer::Unverified),
            sys::BITEXACT_STATUS_DECLINED => Ok(Answer::Declined),
            sys::BITEXACT_STATUS_CAPTURING => Ok(Answer::Capturing),
            status => self.library.check(status).map(|()| Answer::Served),
        }
    }

    /// A host context takes a null stream only.
    fn stream(&self, stream: Stream<'_>) -> sys::bitexact_stream {
        if std::any::TypeId::of::<M>() == std::any::TypeId::of::<Host>() {
            return std::ptr::null_mut();
        }
        stream.to_sys()
    }

    unsafe fn run_rope(&self, call: &Rope<'_, M>, stream: Stream<'_>) -> Result<Answer, Error> {
        // SAFETY: a live context; the caller vouches for the tensors.
        self.answer(unsafe {
            call!(self.library, fused_rope(self.as_raw(), call.params(), self.stream(stream)))
        })
    }

    unsafe fn run_silu_mul(&self, call: &SiluMul<'_, M>, stream: Stream<'_>) -> Result<Answer, Error> {
        // SAFETY: a live context; the caller vouches for the tensors.
        self.answer(unsafe {
            call!(self.library, fused_silu_mul(self.as_raw(), call.params(), self.stream(stream)))
        })
    }

    unsafe fn run_rope_verify(
        &self,
        call: &Rope<'_, M>,
        reference: &RopeReference<'_, M>,
        stream: Stream<'_>,
    ) -> Result<Verdict, Error> {
        let reference = reference.to_sys(call)?;
        self.verdict(|verdict| {
            // SAFETY: a live context; the caller vouches for the tensors.
            unsafe {
                let stream = self.stream(stream);
                call!(
                    self.library,
                    fused_rope_verify(self.as_raw(), call.params(), &reference, stream, verdict)
                )
            }
        })
    }

    unsafe fn run_silu_mul_verify(
        &self,
        call: &SiluMul<'_, M>,
        reference: &SiluMulReference<'_, M>,
        stream: Stream<'_>,
    ) -> Result<Verdict, Error> {
        let reference = reference.to_sys(call)?;
        self.verdict(|verdict| {
            // SAFETY: a live context; the caller vouches for the tensors.
            unsafe {
                let stream = self.stream(stream);
                call!(
                    self.library,
                    fused_silu_mul_verify(self.as_raw(), call.params(), &reference, stream, verdict)
                )
            }
        })
    }

    fn verdict(&self, verify: impl FnOnce(&mut i32) -> i32) -> Result<Verdict, Error> {
        let mut verdict = sys::BITEXACT_STATE_UNDECIDED;
        match self.answer(verify(&mut verdict))? {
            Answer::Served => Ok(Verdict::from_code(verdict)),
            _ => Ok(Verdict::Undecided),
        }
    }
}

/// The operations on slices: synchronous, so that the borrows inside the call cover all of the work.
impl Context<Host> {
    /// Rotates q, and k if the call has one.
    ///
    /// # Errors
    /// [`Error::Invalid`], [`Error::Unsupported`], [`Error::Environment`]; outputs are then untouched.
    pub fn rope(&self, call: &mut Rope<'_, Host>) -> Result<Answer, Error> {
        // SAFETY: views of host memory are live borrows, and the call is held exclusively.
        unsafe { self.run_rope(call, Stream::DEFAULT) }
    }

    /// `out = silu(gate) * up`.
    ///
    /// # Errors
    /// As [`Context::rope`]; [`Error::Environment`] with [`crate::Status::HostLibm`] where this machine's
    /// `expf` is not the contract's.
    pub fn silu_mul(&self, call: &mut SiluMul<'_, Host>) -> Result<Answer, Error> {
        // SAFETY: as in `rope`.
        unsafe { self.run_silu_mul(call, Stream::DEFAULT) }
    }

    /// After [`Answer::Unverified`]: compares the fused result with the runtime's own and keeps the verdict.
    /// Inputs must still hold what the own chain read, so a chain that works in place needs a copy.
    ///
    /// # Errors
    /// [`Error::Invalid`] with [`crate::Status::WrongMode`] if the context's reference is built in;
    /// [`Error::View`] if the reference has another shape than the output.
    pub fn rope_verify(
        &self,
        call: &Rope<'_, Host>,
        reference: &RopeReference<'_, Host>,
    ) -> Result<Verdict, Error> {
        // SAFETY: views of host memory are live borrows; only inputs are read, nothing is written.
        unsafe { self.run_rope_verify(call, reference, Stream::DEFAULT) }
    }

    /// As [`Context::rope_verify`].
    ///
    /// # Errors
    /// As there.
    pub fn silu_mul_verify(
        &self,
        call: &SiluMul<'_, Host>,
        reference: &SiluMulReference<'_, Host>,
    ) -> Result<Verdict, Error> {
        // SAFETY: as in `rope_verify`.
        unsafe { self.run_silu_mul_verify(call, reference, Stream::DEFAULT) }
    }
}

/// The operations on a CUDA device. They enqueue and return; the calling thread's current device, context
/// and error state stay as they were.
impl Context<Device> {
    /// Enqueues the rotation of q, and of k if the call has one.
    ///
    /// # Errors
    /// As [`Context::<Host>::rope`]; after a CUDA error the output is undefined.
    ///
    /// # Safety
    /// Every tensor of the call lies in memory of the context's device, or memory that it reaches. Until the
    /// stream has passed the call this memory stays allocated, and nothing unordered with the stream writes
    /// the inputs or touches the outputs.
    pub unsafe fn rope(&self, call: &mut Rope<'_, Device>, stream: Stream<'_>) -> Result<Answer, Error> {
        // SAFETY: passed on to the caller.
        unsafe { self.run_rope(call, stream) }
    }

    /// Enqueues `out = silu(gate) * up`.
    ///
    /// # Errors
    /// As [`Context::<Device>::rope`].
    ///
    /// # Safety
    /// As [`Context::<Device>::rope`].
    pub unsafe fn silu_mul(
        &self,
        call: &mut SiluMul<'_, Device>,
        stream: Stream<'_>,
    ) -> Result<Answer, Error> {
        // SAFETY: passed on to the caller.
        unsafe { self.run_silu_mul(call, stream) }
    }

    /// As [`Context::<Host>::rope_verify`]; waits for the stream. [`Verdict::Undecided`] if the stream is
    /// capturing.
    ///
    /// # Errors
    /// As there, and [`Error::Environment`], which leaves the kernel undecided.
    ///
    /// # Safety
    /// As [`Context::<Device>::rope`], also for the reference.
    pub unsafe fn rope_verify(
        &self,
        call: &Rope<'_, Device>,
        reference: &RopeReference<'_, Device>,
        stream: Stream<'_>,
    ) -> Result<Verdict, Error> {
        // SAFETY: passed on to the caller.
        unsafe { self.run_rope_verify(call, reference, stream) }
    }

    /// As [`Context::<Device>::rope_verify`].
    ///
    /// # Errors
    /// As there.
    ///
    /// # Safety
    /// As there.
    pub unsafe fn silu_mul_verify(
        &self,
        call: &SiluMul<'_, Device>,
        reference: &SiluMulReference<'_, Device>,
        stream: Stream<'_>,
    ) -> Result<Verdict, Error> {
        // SAFETY: passed on to the caller.
        unsafe { self.run_silu_mul_verify(call, reference, stream) }
    }
}

/// Hands a line of the library to the closure behind `user`.
unsafe extern "C" fn forward_log(level: i32, line: *const c_char, user: *mut c_void) {
    // SAFETY: `user` is the closure that `set_log` gave to the library, and `line` lives for the call.
    let (log, line) = unsafe { (&*user.cast::<LogFn>(), text(line)) };
    let level = if level == sys::BITEXACT_LOG_WARNING { LogLevel::Warning } else { LogLevel::Info };
    // A panic must not cross into C.
    let _ = catch_unwind(AssertUnwindSafe(|| log(level, line)));
}
