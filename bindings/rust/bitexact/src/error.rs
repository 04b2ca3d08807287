//! What can go wrong, with the library's own words.
use std::fmt;

use bitexact_sys as sys;

use crate::Version;

macro_rules! statuses {
    ($($(#[$doc:meta])* $name:ident = $code:ident),* $(,)?) => {
        /// A status of the library other than success and the gate's answers.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Status {
            $($(#[$doc])* $name,)*
        }

        impl Status {
            /// The status with this number, if this crate knows it.
            pub fn from_code(code: i32) -> Option<Status> {
                match code {
                    $(sys::$code => Some(Status::$name),)*
                    _ => None,
                }
            }

            /// The number in the C interface.
            pub fn code(self) -> i32 {
                match self {
                    $(Status::$name => sys::$code,)*
                }
            }
        }
    };
}

statuses! {
    /// A required pointer is null.
    NullPointer = BITEXACT_STATUS_NULL_POINTER,
    /// A struct is too small to be a version of itself.
    StructSize = BITEXACT_STATUS_STRUCT_SIZE,
    /// A flag, reserved member or longer tail is not zero.
    UnknownField = BITEXACT_STATUS_UNKNOWN_FIELD,
    /// A constant is none of the listed ones.
    InvalidValue = BITEXACT_STATUS_INVALID_VALUE,
    /// A size does not fit the others.
    InvalidShape = BITEXACT_STATUS_INVALID_SHAPE,
    /// An output visits one element twice.
    InvalidStride = BITEXACT_STATUS_INVALID_STRIDE,
    /// An output overlaps another tensor, not exactly in place.
    Overlap = BITEXACT_STATUS_OVERLAP,
    /// A byte offset does not fit 63 bits.
    TooLarge = BITEXACT_STATUS_TOO_LARGE,
    /// A pointer is not aligned to its dtype.
    Unaligned = BITEXACT_STATUS_UNALIGNED,
    /// A host context takes no stream.
    InvalidStream = BITEXACT_STATUS_INVALID_STREAM,
    /// No such device ordinal.
    InvalidDevice = BITEXACT_STATUS_INVALID_DEVICE,
    /// A kernel index is out of range.
    Index = BITEXACT_STATUS_INDEX,
    /// The function table asked for is newer than the library.
    ApiVersion = BITEXACT_STATUS_API_VERSION,
    /// `BITEXACT_GATE` holds an unknown policy.
    Environment = BITEXACT_STATUS_ENVIRONMENT,
    /// Well-formed, but this build has no such kernel.
    Unsupported = BITEXACT_STATUS_UNSUPPORTED,
    /// The context was made before `fork()`; make one in the child.
    Forked = BITEXACT_STATUS_FORKED,
    /// The call does not fit the context's reference mode.
    WrongMode = BITEXACT_STATUS_WRONG_MODE,
    /// No CUDA driver on this machine.
    NoDriver = BITEXACT_STATUS_NO_DRIVER,
    /// A driver, but no CUDA device.
    NoDevice = BITEXACT_STATUS_NO_DEVICE,
    /// The driver is older than the library's CUDA runtime.
    DriverTooOld = BITEXACT_STATUS_DRIVER_TOO_OLD,
    /// No machine code or PTX for this device.
    NoKernelImage = BITEXACT_STATUS_NO_KERNEL_IMAGE,
    /// Host or device memory ran out.
    OutOfMemory = BITEXACT_STATUS_OUT_OF_MEMORY,
    /// Any other CUDA error; [`Error::Environment`] holds its number.
    CudaError = BITEXACT_STATUS_CUDA_ERROR,
    /// The library was built without CUDA.
    NoCudaBackend = BITEXACT_STATUS_NO_CUDA_BACKEND,
    /// This machine's `expf` is not the one that the contract names.
    HostLibm = BITEXACT_STATUS_HOST_LIBM,
    /// A defect of the library, or a device that computes wrongly.
    Internal = BITEXACT_STATUS_INTERNAL,
}

/// Why a view or a call made of views was refused before the library saw it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ViewError {
    /// Shape and strides differ in length, or have more axes than the call takes.
    Rank {
        /// Which tensor.
        tensor: &'static str,
        /// Its number of axes.
        found: usize,
        /// What is accepted.
        accepted: &'static str,
    },
    /// An element lies outside the allocation.
    OutOfBounds {
        /// Lowest element offset that the view reaches, from the start of the allocation.
        lowest: i128,
        /// Highest such offset.
        highest: i128,
        /// Elements in the allocation.
        len: usize,
    },
    /// An output visits one element twice.
    SelfOverlap,
    /// A size, stride or offset does not fit 63 bits in bytes.
    TooLarge,
    /// The innermost axis is not contiguous.
    InnerStride {
        /// Which tensor.
        tensor: &'static str,
        /// Its stride, in elements.
        found: i64,
    },
    /// Two tensors of one call do not fit each other.
    Shape {
        /// Which tensor.
        tensor: &'static str,
        /// Its shape.
        found: Vec<usize>,
        /// What is accepted.
        accepted: String,
    },
    /// A tensor has a dtype that the call does not take there.
    DType {
        /// Which tensor.
        tensor: &'static str,
        /// What is accepted.
        accepted: &'static str,
    },
}

impl fmt::Display for ViewError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ViewError::Rank { tensor, found, accepted } => {
                write!(f, "{tensor} has {found} axes; accepted: {accepted}")
            }
            ViewError::OutOfBounds { lowest, highest, len } => {
                write!(f, "the view reaches elements {lowest} to {highest} of an allocation of {len}")
            }
            ViewError::SelfOverlap => f.write_str("the strides of an output visit an element twice"),
            ViewError::TooLarge => f.write_str("a size, stride or offset does not fit 63 bits in bytes"),
            ViewError::InnerStride { tensor, found } => {
                write!(f, "the innermost stride of {tensor} is {found}; accepted: 1")
            }
            ViewError::Shape { tensor, found, accepted } => {
                write!(f, "{tensor} has shape {found:?}; accepted: {accepted}")
            }
            ViewError::DType { tensor, accepted } => {
                write!(f, "{tensor} has another dtype; accepted: {accepted}")
            }
        }
    }
}

impl std::error::Error for ViewError {}

/// Every failure of this crate. The gate's answers are not failures: see [`crate::Answer`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// The arguments are wrong; the text names argument, value and what is accepted.
    Invalid {
        /// What was wrong.
        status: Status,
        /// The library's text.
        text: String,
    },
    /// The arguments are right, but this build of the library has no such kernel.
    Unsupported {
        /// The library's text.
        text: String,
    },
    /// The machine, its driver or its memory.
    Environment {
        /// What was wrong.
        status: Status,
        /// The `cudaError_t` behind it, or 0.
        cuda: i32,
        /// The library's text.
        text: String,
    },
    /// A status that this crate does not know: the library is newer.
    Unknown {
        /// The number.
        code: i32,
        /// The library's text.
        text: String,
    },
    /// A view was refused before the library saw it.
    View(ViewError),
    /// The library's version has another interface than this crate.
    Version {
        /// The library's version.
        found: Version,
        /// The version this crate was made for.
        wanted: Version,
    },
    /// The library could not be loaded.
    Load {
        /// What was tried.
        path: String,
        /// The loader's text.
        text: String,
    },
    /// The library lacks a function.
    MissingSymbol {
        /// Its name.
        name: &'static str,
    },
}

impl Error {
    /// The library's status, if the error came from the library and is known.
    pub fn status(&self) -> Option<Status> {
        match self {
            Error::Invalid { status, .. } | Error::Environment { status, .. } => Some(*status),
            Error::Unsupported { .. } => Some(Status::Unsupported),
            _ => None,
        }
    }

    /// The error for a status that is neither 0 nor an answer of the gate.
    pub(crate) fn from_status(code: i32, cuda: i32, text: String) -> Error {
        match Status::from_code(code) {
            Some(Status::Unsupported) => Error::Unsupported { text },
            Some(status) if code < 100 => Error::Invalid { status, text },
            Some(status) => Error::Environment { status, cuda, text },
            None => Error::Unknown { code, text },
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Invalid { text, .. } | Error::Unsupported { text } => f.write_str(text),
            Error::Environment { cuda: 0, text, .. } => f.write_str(text),
            Error::Environment { cuda, text, .. } => write!(f, "{text} (cudaError_t {cuda})"),
            Error::Unknown { code, text } => write!(f, "status {code}: {text}"),
            Error::View(error) => error.fmt(f),
            Error::Version { found, wanted } => {
                write!(f, "libbitexact is version {found}; this crate was made for {wanted}")
            }
            Error::Load { path, text } => write!(f, "{path} could not be loaded: {text}"),
            Error::MissingSymbol { name } => write!(f, "the library has no function {name}"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::View(error) => Some(error),
            _ => None,
        }
    }
}

impl From<ViewError> for Error {
    fn from(error: ViewError) -> Error {
        Error::View(error)
    }
}
