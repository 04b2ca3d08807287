//! Fused rotary embedding and SiLU-mul whose output bits equal the eager chain of separate operators, for
//! runtimes that hold raw device pointers.
//!
//! A [`Library`] is linked (feature `link`) or loaded (feature `dlopen`). From it comes a [`Context`], which
//! owns the verdicts of the gate for one device: [`Context<Host>`] works on slices and is safe,
//! [`Context<Device>`] enqueues work on a CUDA stream. [`View`] and [`ViewMut`] say where a tensor lies and
//! prove that it stays inside its allocation; [`Rope`] and [`SiluMul`] are calls made of views.
//!
//! ```
//! # #[cfg(feature = "link")]
//! # fn main() -> Result<(), bitexact::Error> {
//! use bitexact::{Answer, Bf16, Library, Options, SiluMul, View, ViewMut};
//!
//! let context = Library::linked()?.host_context(Options::default())?;
//! let gate = [Bf16(0x3f80); 8]; // 1.0
//! let up = [Bf16(0x4000); 8]; // 2.0
//! let mut out = [Bf16(0); 8];
//! let mut call = SiluMul::new(
//!     View::contiguous(&gate, &[2, 4])?,
//!     View::contiguous(&up, &[2, 4])?,
//!     ViewMut::contiguous(&mut out, &[2, 4])?,
//! )?;
//! assert_eq!(context.silu_mul(&mut call)?, Answer::Served);
//! assert_eq!(out[7], Bf16(0x3fbb)); // 2 * silu(1), both rounded to bfloat16
//! # Ok(())
//! # }
//! # #[cfg(not(feature = "link"))]
//! # fn main() {}
//! ```
//!
//! # Units
//! Sizes, strides and offsets count elements, never bytes. Strides may be negative or zero.
//!
//! # Safety of launches
//! A launch returns before the device has run it, so no borrow of Rust covers the whole work. Functions that
//! launch on a CUDA device are therefore `unsafe`, with one condition: the memory lives, and nobody writes
//! inputs or touches outputs, until the stream has passed the call. Everything on the host is safe.
//!
//! # The gate
//! Each compiled kernel is checked once per context before its result counts. With [`Reference::Builtin`]
//! every call is [`Answer::Served`] with the contract's bits. With [`Reference::Caller`] the runtime's own
//! result is the truth: on [`Answer::Unverified`] run the own chain and hand its result to
//! [`Context::rope_verify`] or [`Context::silu_mul_verify`]; on [`Answer::Declined`] and
//! [`Answer::Capturing`] run the own chain.
#![warn(missing_docs)]

mod context;
mod error;
mod library;
mod report;
mod rope;
mod silu_mul;
mod stream;
mod view;

pub use context::{Answer, Context, Info, LogLevel, Options, Policy, Reference, Verdict};
pub use error::{Error, Status, ViewError};
pub use library::{Library, Version};
pub use report::{Basis, Certificate, GateReport, Image, Mismatch, Numerics, Operation, Reason};
pub use rope::{Combine, Compute, InOut, Pairing, Rope, RopeReference, TableWidth};
pub use silu_mul::{Clamp, Silu, SiluMul, SiluMulReference};
pub use stream::Stream;
pub use view::{Bf16, DType, Device, Element, Host, Memory, View, ViewMut, F16};

/// The raw bindings.
pub use bitexact_sys as sys;

/// Compiles and runs the lines of the README.
#[cfg(all(doctest, feature = "link"))]
#[doc = include_str!("../README.md")]
struct Readme;
