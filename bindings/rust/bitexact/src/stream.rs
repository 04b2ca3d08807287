//! CUDA stream handles, passed through unchanged.
use std::ffi::c_void;
use std::marker::PhantomData;

use bitexact_sys as sys;

/// A CUDA stream, borrowed for `'s`.
///
/// The value is opaque: CUDA's own special handles 0, 1 and 2 reach the library as they are. Handle 2 means
/// "the calling thread's stream", so a `Stream` stays on its thread:
///
/// ```compile_fail
/// fn needs_send<T: Send>(_: T) {}
/// needs_send(bitexact::Stream::PER_THREAD);
/// ```
/// ```compile_fail
/// fn needs_sync<T: Sync>(_: T) {}
/// needs_sync(bitexact::Stream::PER_THREAD);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stream<'s> {
    handle: *mut c_void,
    borrow: PhantomData<&'s ()>,
}

impl Stream<'static> {
    /// Handle 0: the default stream, as the program that made it was compiled.
    pub const DEFAULT: Stream<'static> = Stream::special(0);
    /// Handle 1: the legacy default stream.
    pub const LEGACY: Stream<'static> = Stream::special(1);
    /// Handle 2: the default stream of the calling thread.
    pub const PER_THREAD: Stream<'static> = Stream::special(2);

    const fn special(handle: usize) -> Stream<'static> {
        Stream { handle: handle as *mut c_void, borrow: PhantomData }
    }
}

impl<'s> Stream<'s> {
    /// Borrows a `cudaStream_t` or `CUstream`.
    ///
    /// # Safety
    /// The handle is one of the special values, or a stream that exists for the whole of `'s`.
    pub unsafe fn from_raw(handle: *mut c_void) -> Stream<'s> {
        Stream { handle, borrow: PhantomData }
    }

    /// The handle.
    pub fn as_raw(self) -> *mut c_void {
        self.handle
    }

    pub(crate) fn to_sys(self) -> sys::bitexact_stream {
        self.handle.cast()
    }
}
