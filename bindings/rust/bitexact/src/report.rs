//! What the gate has to say about a kernel, and certificates.
use bitexact_sys as sys;

use crate::library::text;
use crate::rope::Combine;
use crate::silu_mul::Silu;
use crate::{DType, Verdict};

/// What code runs on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Image {
    /// The host backend.
    Host,
    /// Machine code shipped for this architecture.
    Sass,
    /// PTX that the driver finished on this machine.
    Ptx,
}

impl Image {
    pub(crate) fn from_code(code: i32) -> Option<Image> {
        match code {
            sys::BITEXACT_IMAGE_HOST => Some(Image::Host),
            sys::BITEXACT_IMAGE_SASS => Some(Image::Sass),
            sys::BITEXACT_IMAGE_PTX => Some(Image::Ptx),
            _ => None,
        }
    }
}

/// An operation of the library.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Operation {
    /// [`crate::Rope`].
    Rope,
    /// [`crate::SiluMul`].
    SiluMul,
}

/// The chain that a kernel follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Numerics {
    /// Of a [`crate::Rope`].
    Combine(Combine),
    /// Of a [`crate::SiluMul`].
    Silu(Silu),
}

/// Why a verdict is what it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Reason {
    /// There is no verdict yet.
    None,
    /// All compared bits were equal.
    Equal,
    /// At least one bit differed.
    Mismatch,
    /// The fused kernel could not be launched or failed.
    LaunchError,
    /// No machine code or PTX for this device.
    NoImage,
    /// The policy decided.
    Policy,
    /// The built-in reference or the comparison is wrong on this device, so that nothing is proven.
    Reference,
}

/// What a verdict rests on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Basis {
    /// Probe inputs against the built-in reference.
    pub probe: bool,
    /// The caller's tensors.
    pub live: bool,
    /// A completed certificate.
    pub certificate: bool,
}

impl Basis {
    fn from_bits(bits: i32) -> Basis {
        Basis {
            probe: bits & sys::BITEXACT_BASIS_PROBE != 0,
            live: bits & sys::BITEXACT_BASIS_LIVE != 0,
            certificate: bits & sys::BITEXACT_BASIS_CERTIFICATE != 0,
        }
    }
}

/// The first element that differed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Mismatch {
    /// What found it.
    pub basis: Basis,
    /// 0 for the output or q, 1 for k.
    pub tensor: i32,
    /// Elements that differed in the declining check.
    pub count: i64,
    /// Flat index in (batch, token, head, head_dim) or (batch, row, column) order.
    pub index: i64,
    /// Bits of the reference there.
    pub expected: u64,
    /// Bits of the fused kernel there.
    pub actual: u64,
}

/// The whole story of one compiled kernel in one context.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GateReport {
    /// Names every property of the kernel.
    pub kernel: String,
    /// `None` if this crate does not know it; likewise below.
    pub operation: Option<Operation>,
    /// The gate's state.
    pub verdict: Verdict,
    /// Why.
    pub reason: Option<Reason>,
    /// What the verdict rests on.
    pub basis: Basis,
    /// The status met, where the reason is a launch error or a missing image; else 0.
    pub status: i32,
    /// Of the tensors.
    pub dtype: Option<DType>,
    /// Of the tables; `None` for SiLU-mul.
    pub table_dtype: Option<DType>,
    /// That the arithmetic rounds to; `None` for SiLU-mul in the tensors' own dtype.
    pub compute_dtype: Option<DType>,
    /// The chain.
    pub numerics: Option<Numerics>,
    /// Calls served by the fused kernel.
    pub fused_calls: i64,
    /// Calls served by the built-in reference.
    pub reference_calls: i64,
    /// Calls answered with anything but [`crate::Answer::Served`].
    pub declined_calls: i64,
    /// Comparisons run to their end.
    pub checks: i64,
    /// Elements compared in all checks.
    pub compared: i64,
    /// Elements that were NaN on both sides with other bits: held equal, counted here.
    pub nan_payload_differences: i64,
    /// The first element that differed, if one did.
    pub mismatch: Option<Mismatch>,
}

impl GateReport {
    pub(crate) fn from_sys(raw: &sys::bitexact_gate_report) -> GateReport {
        let operation = match raw.operation {
            sys::BITEXACT_OPERATION_FUSED_ROPE => Some(Operation::Rope),
            sys::BITEXACT_OPERATION_FUSED_SILU_MUL => Some(Operation::SiluMul),
            _ => None,
        };
        let mismatch = Mismatch {
            basis: Basis::from_bits(raw.mismatch_basis),
            tensor: raw.mismatch_tensor,
            count: raw.mismatches,
            index: raw.mismatch_index,
            expected: raw.mismatch_expected,
            actual: raw.mismatch_actual,
        };
        GateReport {
            // SAFETY: the name is static text.
            kernel: unsafe { text(raw.kernel_name) }.to_owned(),
            operation,
            verdict: Verdict::from_code(raw.state),
            reason: match raw.reason {
                sys::BITEXACT_REASON_NONE => Some(Reason::None),
                sys::BITEXACT_REASON_EQUAL => Some(Reason::Equal),
                sys::BITEXACT_REASON_MISMATCH => Some(Reason::Mismatch),
                sys::BITEXACT_REASON_LAUNCH_ERROR => Some(Reason::LaunchError),
                sys::BITEXACT_REASON_NO_IMAGE => Some(Reason::NoImage),
                sys::BITEXACT_REASON_POLICY => Some(Reason::Policy),
                sys::BITEXACT_REASON_REFERENCE => Some(Reason::Reference),
                _ => None,
            },
            basis: Basis::from_bits(raw.basis),
            status: raw.status,
            dtype: DType::from_code(raw.dtype),
            table_dtype: DType::from_code(raw.table_dtype),
            compute_dtype: DType::from_code(raw.compute_dtype),
            numerics: match operation {
                Some(Operation::Rope) => Combine::from_code(raw.numerics).map(Numerics::Combine),
                Some(Operation::SiluMul) => Silu::from_code(raw.numerics).map(Numerics::Silu),
                None => None,
            },
            fused_calls: raw.fused_calls,
            reference_calls: raw.reference_calls,
            declined_calls: raw.declined_calls,
            checks: raw.checks,
            compared: raw.compared,
            nan_payload_differences: raw.nan_payload_differences,
            mismatch: (raw.mismatches > 0).then_some(mismatch),
        }
    }
}

/// A certificate, summed up over the parts run so far. Start with the default and pass it to every
/// [`crate::Context::certify`] of one kernel.
#[derive(Clone, Copy, Debug)]
pub struct Certificate {
    raw: sys::bitexact_certify_report,
}

impl Default for Certificate {
    fn default() -> Certificate {
        Certificate {
            raw: sys::bitexact_certify_report {
                struct_size: size_of::<sys::bitexact_certify_report>() as u32,
                flags: 0,
                kernel_index: 0,
                parts_total: 0,
                parts_done: 0,
                exhaustive_compared: 0,
                sampled_compared: 0,
                mismatches: 0,
                nan_payload_differences: 0,
                digest: 0,
                mismatch_inputs: [0; 4],
                mismatch_expected: 0,
                mismatch_actual: 0,
            },
        }
    }
}

impl Certificate {
    pub(crate) fn as_sys(&mut self) -> &mut sys::bitexact_certify_report {
        &mut self.raw
    }

    /// Parts of the whole certificate.
    pub fn parts_total(&self) -> i64 {
        self.raw.parts_total
    }

    /// Parts run so far. Fewer than [`Certificate::parts_total`] prove nothing.
    pub fn parts_done(&self) -> i64 {
        self.raw.parts_done
    }

    /// Elements of domains swept whole.
    pub fn exhaustive_compared(&self) -> i64 {
        self.raw.exhaustive_compared
    }

    /// Elements of sampled domains.
    pub fn sampled_compared(&self) -> i64 {
        self.raw.sampled_compared
    }

    /// Elements that differed.
    pub fn mismatches(&self) -> i64 {
        self.raw.mismatches
    }

    /// Order-free digest of the fused output bits.
    pub fn digest(&self) -> u64 {
        self.raw.digest
    }

    /// Input bits of the first mismatch, then the bits expected and the bits met, if one differed.
    pub fn first_mismatch(&self) -> Option<([u64; 4], u64, u64)> {
        (self.raw.mismatches > 0).then_some((
            self.raw.mismatch_inputs,
            self.raw.mismatch_expected,
            self.raw.mismatch_actual,
        ))
    }
}
