//! Shared libraries, opened while the program runs.

use std::ffi::{CStr, CString, OsStr, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;

/// An open library. It stays open for the life of the process: threads that it started may still run in it.
#[derive(Debug)]
pub struct Library {
    handle: NonNull<c_void>,
}

// SAFETY: the handle is only ever given to dlsym, which any thread may call.
unsafe impl Send for Library {}
// SAFETY: as above.
unsafe impl Sync for Library {}

impl Library {
    /// Whether this program can open any: one that is statically linked has no loader.
    pub const CAN_OPEN: bool = !cfg!(target_feature = "crt-static");

    /// Opens `path`, or what the loader finds for it when it has no slash. Code of the library may run at once.
    ///
    /// # Errors
    /// The loader's own words.
    pub fn open(path: &Path) -> Result<Library, String> {
        if !Library::CAN_OPEN {
            return Err("this membar is statically linked and opens no libraries".to_owned());
        }
        let path = CString::new(path.as_os_str().as_bytes()).map_err(|_| "its name has a zero byte".to_owned())?;
        // SAFETY: `path` is a C string. Code of the library that runs now is as trusted as whoever named the library.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        NonNull::new(handle).map(|handle| Library { handle }).ok_or_else(|| {
            // SAFETY: dlerror returns null or a C string that lives until this thread's next call of the loader.
            let message = unsafe { libc::dlerror().as_ref().map(|message| CStr::from_ptr(message)) };
            message.map_or("the loader does not say why".to_owned(), |message| message.to_string_lossy().into_owned())
        })
    }

    /// Where `symbol` is; `None` when the library has no such symbol.
    pub fn symbol(&self, symbol: &CStr) -> Option<NonNull<c_void>> {
        // SAFETY: the library is open and `symbol` is a C string.
        NonNull::new(unsafe { libc::dlsym(self.handle.as_ptr(), symbol.as_ptr()) })
    }

    /// The file of the library `name` that has `symbol`, if this system has one. It is opened for that, and closed again.
    pub(super) fn find(name: &str, symbol: &CStr) -> Option<PathBuf> {
        let library = Library::open(Path::new(name)).ok()?;
        let found = library.symbol(symbol).and_then(|address| {
            let mut info = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
            // SAFETY: `info` has room for what is written; zero bytes are valid for its pointers and numbers.
            let info = unsafe { (libc::dladdr(address.as_ptr(), info.as_mut_ptr()) != 0).then(|| info.assume_init()) };
            let name = NonNull::new(info?.dli_fname.cast_mut())?;
            // SAFETY: a C string that lives as long as the library is open, and it is copied.
            let file = PathBuf::from(OsStr::from_bytes(unsafe { CStr::from_ptr(name.as_ptr()) }.to_bytes()));
            Some(file.canonicalize().unwrap_or(file))
        });
        // SAFETY: nothing of the library was called, and nothing that it gave is used after this.
        unsafe { libc::dlclose(library.handle.as_ptr()) };
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_library_is_an_error_in_the_loaders_words() {
        let error = Library::open(Path::new("/proc/self/status")).unwrap_err();
        assert!(error.contains("/proc/self/status") || !Library::CAN_OPEN, "{error}");
        assert_eq!(Library::find("libno-such-thing.so.9", c"symbol"), None);
    }
}
