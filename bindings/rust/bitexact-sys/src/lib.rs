//! Raw bindings of libbitexact. The crate `bitexact` checks what can be checked; use it unless you need
//! the C structs themselves.
//!
//! Everything here is generated from `include/bitexact.h` by `tools/regenerate`, and the comments are the
//! header's: sizes and strides count elements, functions return 0 or a `BITEXACT_STATUS_` value.
//!
//! Features: `link` (default) links with the library and binds its functions; `dlopen` binds what is
//! needed to load it at run time; `bindgen` runs the `bindgen` program on the header instead of using the
//! committed files; `vendored` builds the library with CMake if none is installed.
#![no_std]

/// Types, constants and the function table.
#[allow(
    non_camel_case_types,
    rustdoc::broken_intra_doc_links,
    rustdoc::invalid_html_tags,
    clippy::doc_lazy_continuation
)]
mod bindings {
    #[cfg(not(feature = "bindgen"))]
    include!("bindings.rs");
    #[cfg(feature = "bindgen")]
    include!(concat!(env!("OUT_DIR"), "/bindings.rs"));
}
pub use bindings::*;

/// The exported functions.
#[cfg(feature = "link")]
#[allow(rustdoc::broken_intra_doc_links, rustdoc::invalid_html_tags, clippy::doc_lazy_continuation)]
mod functions {
    use crate::bindings::*;

    #[cfg(not(feature = "bindgen"))]
    include!("functions.rs");
    #[cfg(feature = "bindgen")]
    include!(concat!(env!("OUT_DIR"), "/functions.rs"));
}
#[cfg(feature = "link")]
pub use functions::*;

#[cfg(all(feature = "dlopen", not(unix)))]
compile_error!("the feature `dlopen` of bitexact-sys needs a Unix system");

/// The C library's own loader, declared by hand so that no other crate is needed.
#[cfg(all(feature = "dlopen", unix))]
pub mod loader {
    use core::ffi::{c_char, c_int, c_void};

    /// Resolve every symbol while loading.
    pub const RTLD_NOW: c_int = 2;

    // In glibc before 2.34 these live in libdl; later ones keep an empty archive of that name.
    #[cfg_attr(all(target_os = "linux", target_env = "gnu"), link(name = "dl"))]
    extern "C" {
        /// Loads a library. Null on failure.
        pub fn dlopen(filename: *const c_char, flags: c_int) -> *mut c_void;
        /// The address of a symbol. Null if it is absent.
        pub fn dlsym(handle: *mut c_void, symbol: *const c_char) -> *mut c_void;
        /// Text of this thread's last failure; null if there was none.
        pub fn dlerror() -> *mut c_char;
        /// Gives a handle back.
        pub fn dlclose(handle: *mut c_void) -> c_int;
    }
}
