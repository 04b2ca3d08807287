//! The library itself: linked or loaded, and its version.
use std::ffi::CStr;
use std::fmt;

use bitexact_sys as sys;

use crate::context::{Context, Options};
use crate::{Device, Error, Host, Memory, Rope, SiluMul};

/// A version of libbitexact.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version {
    /// Until 1.0 the interface may change with each minor version.
    pub major: u32,
    /// Additions.
    pub minor: u32,
    /// Fixes.
    pub patch: u32,
}

impl Version {
    /// The version whose header this crate was generated from.
    pub const OF_HEADER: Version = Version::from_number(sys::BITEXACT_VERSION as u32);

    const fn from_number(number: u32) -> Version {
        Version { major: number / 10_000, minor: number / 100 % 100, patch: number % 100 }
    }

    /// Does a library of this version offer what the header of `wanted` describes?
    fn serves(self, wanted: Version) -> bool {
        self.major == wanted.major
            && if wanted.major == 0 { self.minor == wanted.minor } else { self.minor >= wanted.minor }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

/// libbitexact, ready for use. Copies freely; any thread may use it.
#[derive(Clone, Copy, Debug)]
pub struct Library {
    table: &'static sys::bitexact_api,
}

type VersionFn = unsafe extern "C" fn() -> u32;
type GetApiFn = unsafe extern "C" fn(u32, *mut *const sys::bitexact_api) -> i32;

impl Library {
    /// The library that this program is linked with.
    ///
    /// # Errors
    /// [`Error::Version`] if it is not the version that this crate was made for.
    #[cfg(feature = "link")]
    pub fn linked() -> Result<Library, Error> {
        // SAFETY: the linker bound both functions to libbitexact.
        unsafe { Library::from_functions(sys::bitexact_version, sys::bitexact_get_api) }
    }

    /// Loads the library from a file. It stays loaded until the process ends.
    ///
    /// # Errors
    /// [`Error::Load`], [`Error::MissingSymbol`], [`Error::Version`].
    ///
    /// # Safety
    /// The file is libbitexact: loading runs its code, and its functions are trusted.
    #[cfg(all(feature = "dlopen", unix))]
    pub unsafe fn open(path: impl AsRef<std::path::Path>) -> Result<Library, Error> {
        // SAFETY: passed on to the caller.
        unsafe { load::open(path.as_ref()) }
    }

    /// Loads the library that the environment variable `BITEXACT_LIBRARY` names, or else
    /// `libbitexact.so.1` from where the system looks for libraries.
    ///
    /// # Errors
    /// As [`Library::open`].
    ///
    /// # Safety
    /// As [`Library::open`].
    #[cfg(all(feature = "dlopen", unix))]
    pub unsafe fn open_default() -> Result<Library, Error> {
        let path = std::env::var_os("BITEXACT_LIBRARY").unwrap_or_else(|| "libbitexact.so.1".into());
        // SAFETY: passed on to the caller.
        unsafe { load::open(path.as_ref()) }
    }

    /// Asks for the function table and checks that it can be used.
    #[cfg_attr(not(any(feature = "link", all(feature = "dlopen", unix))), allow(dead_code))]
    unsafe fn from_functions(version: VersionFn, get_api: GetApiFn) -> Result<Library, Error> {
        // SAFETY: a function without arguments.
        let found = Version::from_number(unsafe { version() });
        let refused = Error::Version { found, wanted: Version::OF_HEADER };
        if !found.serves(Version::OF_HEADER) {
            return Err(refused);
        }
        let mut table = std::ptr::null();
        // SAFETY: `table` is a valid place for the answer.
        let status = unsafe { get_api(sys::BITEXACT_API_VERSION as u32, &mut table) };
        if status != sys::BITEXACT_STATUS_OK || table.is_null() {
            return Err(refused);
        }
        // SAFETY: the library answered with a table, which starts with its size and lives until the process
        // ends.
        let size = unsafe { (*table).struct_size } as usize;
        if size < size_of::<sys::bitexact_api>() {
            return Err(refused);
        }
        // SAFETY: as above, and it is as long as the type.
        let table = unsafe { &*table };
        if !is_complete(table) {
            return Err(refused);
        }
        Ok(Library { table })
    }

    pub(crate) fn table(self) -> &'static sys::bitexact_api {
        self.table
    }

    /// The library's version.
    pub fn version(self) -> Version {
        // SAFETY: a function without arguments.
        Version::from_number(unsafe { call!(self, version()) })
    }

    /// One line: version, source revision, compilers, architectures.
    pub fn build_info(self) -> &'static str {
        // SAFETY: a function without arguments that returns a static string.
        unsafe { text(call!(self, build_info())) }
    }

    /// Name and meaning of a status number, also of an unknown one.
    pub fn status_text(self, code: i32) -> &'static str {
        // SAFETY: any number is accepted, and the string is static.
        unsafe { text(call!(self, status_string(code))) }
    }

    /// A context for slices of this process.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the environment variable `BITEXACT_GATE` holds an unknown policy.
    pub fn host_context(self, options: Options) -> Result<Context<Host>, Error> {
        Context::new(self, sys::BITEXACT_DEVICE_HOST, options)
    }

    /// A context for a CUDA device, by its ordinal after `CUDA_VISIBLE_DEVICES`. Loads the kernels, so that no
    /// later call does.
    ///
    /// # Errors
    /// [`Error::Environment`] without a usable driver, device or kernel image, or if the library was built
    /// without CUDA; [`Error::Invalid`] for an unknown ordinal or policy.
    pub fn device_context(self, ordinal: u32, options: Options) -> Result<Context<Device>, Error> {
        // An ordinal beyond i32 is unknown in any case, but must not turn into the host's.
        Context::new(self, i32::try_from(ordinal).unwrap_or(i32::MAX), options)
    }

    /// Would some context serve this call? Checks the arguments alone: shapes, strides, alignment, overlap,
    /// and whether this build has the kernel. Launches nothing and needs no GPU.
    ///
    /// # Errors
    /// [`Error::Invalid`] and [`Error::Unsupported`], as the call itself would answer.
    pub fn check_rope<M: Memory>(self, call: &Rope<'_, M>) -> Result<(), Error> {
        // SAFETY: a null context is accepted, and no tensor is touched.
        self.check(unsafe { call!(self, fused_rope_can_use(std::ptr::null_mut(), call.params())) })
    }

    /// As [`Library::check_rope`].
    ///
    /// # Errors
    /// As there.
    pub fn check_silu_mul<M: Memory>(self, call: &SiluMul<'_, M>) -> Result<(), Error> {
        // SAFETY: a null context is accepted, and no tensor is touched.
        self.check(unsafe { call!(self, fused_silu_mul_can_use(std::ptr::null_mut(), call.params())) })
    }

    /// The error behind a status. Call it on the thread that got the status, before any other call.
    pub(crate) fn check(self, status: i32) -> Result<(), Error> {
        if status == sys::BITEXACT_STATUS_OK {
            return Ok(());
        }
        // SAFETY: functions without arguments; the text is copied before the next call of this thread.
        let (cuda, text) =
            unsafe { (call!(self, last_cuda_error()), text(call!(self, last_error())).to_owned()) };
        Err(Error::from_status(status, cuda, text))
    }
}

/// Calls a function of the table. `Library::from_functions` has seen that none is missing.
macro_rules! call {
    ($library:expr, $function:ident($($argument:expr),*)) => {
        ($library.table().$function.expect("the table was checked for holes"))($($argument),*)
    };
}
pub(crate) use call;

/// No function of the table is null.
fn is_complete(table: &sys::bitexact_api) -> bool {
    let first = std::mem::offset_of!(sys::bitexact_api, version) / size_of::<usize>();
    let words = size_of::<sys::bitexact_api>() / size_of::<usize>();
    let base = std::ptr::from_ref(table).cast::<Option<VersionFn>>();
    // SAFETY: from `version` on the table holds nothing but function pointers, all of one size.
    (first..words).all(|word| unsafe { (*base.add(word)).is_some() })
}

/// # Safety
/// `string` is null or ends with a zero, and lives for `'a`.
pub(crate) unsafe fn text<'a>(string: *const std::ffi::c_char) -> &'a str {
    if string.is_null() {
        return "";
    }
    // SAFETY: passed on to the caller.
    unsafe { CStr::from_ptr(string) }.to_str().unwrap_or("")
}

#[cfg(all(feature = "dlopen", unix))]
mod load {
    use super::{GetApiFn, Library, VersionFn};
    use crate::Error;
    use bitexact_sys::loader;
    use std::ffi::{c_void, CStr, CString};
    use std::os::unix::ffi::OsStrExt;
    use std::path::Path;

    struct Handle(*mut c_void);

    impl Drop for Handle {
        fn drop(&mut self) {
            // SAFETY: the handle came from dlopen and is given back once.
            unsafe { loader::dlclose(self.0) };
        }
    }

    pub unsafe fn open(path: &Path) -> Result<Library, Error> {
        let shown = path.display().to_string();
        let failed = |text: String| Error::Load { path: shown.clone(), text };
        let name = CString::new(path.as_os_str().as_bytes())
            .map_err(|_| failed("the name holds a zero byte".into()))?;
        // SAFETY: the caller vouches for the file.
        let handle = Handle(unsafe { loader::dlopen(name.as_ptr(), loader::RTLD_NOW) });
        if handle.0.is_null() {
            std::mem::forget(handle);
            return Err(failed(last_error()));
        }
        let version = symbol(&handle, c"bitexact_version", "bitexact_version")?;
        let get_api = symbol(&handle, c"bitexact_get_api", "bitexact_get_api")?;
        // SAFETY: the caller vouches that these symbols are libbitexact's, so these are their types.
        let library = unsafe {
            Library::from_functions(
                std::mem::transmute::<*mut c_void, VersionFn>(version),
                std::mem::transmute::<*mut c_void, GetApiFn>(get_api),
            )
        }?;
        // The table points into the library for the rest of the process.
        std::mem::forget(handle);
        Ok(library)
    }

    fn symbol(handle: &Handle, name: &CStr, shown: &'static str) -> Result<*mut c_void, Error> {
        // SAFETY: an open handle and a string that ends with a zero.
        let address = unsafe { loader::dlsym(handle.0, name.as_ptr()) };
        if address.is_null() {
            return Err(Error::MissingSymbol { name: shown });
        }
        Ok(address)
    }

    fn last_error() -> String {
        // SAFETY: the text lives until the next call of the loader on this thread and is copied here.
        unsafe { super::text(loader::dlerror()).to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use super::Version;

    #[test]
    fn versions_before_one_must_agree_in_major_and_minor() {
        let serves = |found, wanted| Version::from_number(found).serves(Version::from_number(wanted));
        assert!(serves(900, 900) && serves(907, 900) && serves(900, 907));
        assert!(!serves(1000, 900) && !serves(800, 900) && !serves(10900, 900));
        assert!(serves(10100, 10000) && !serves(10000, 10100) && !serves(20000, 10000));
        assert_eq!(Version::from_number(12345).to_string(), "1.23.45");
    }
}
