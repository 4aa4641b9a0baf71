//! A barrier from a shared library: three C functions, which `examples/membar_barrier.h` declares.

use super::Barrier;
use crate::error::{Error, Result};
use crate::machine::Library;
use std::ffi::{CStr, c_uint, c_void};
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};

type Create = unsafe extern "C" fn(c_uint) -> *mut c_void;
type Wait = unsafe extern "C" fn(*mut c_void, c_uint);
type Destroy = unsafe extern "C" fn(*mut c_void);

/// A shared library that has a barrier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plugin {
    name: String,
    path: PathBuf,
}

/// The three functions. Their library stays open.
struct Functions {
    create: Create,
    wait: Wait,
    destroy: Destroy,
}

/// A barrier that a plugin made.
pub struct PluginBarrier {
    barrier: NonNull<c_void>,
    wait: Wait,
    destroy: Destroy,
    _inside: Inside,
}

impl Plugin {
    /// The plugin in the file `path`. It is opened, and nothing of it is called yet.
    ///
    /// # Errors
    /// A usage error when it is no library, or lacks one of the functions.
    pub fn new(path: &Path) -> Result<Plugin> {
        let stem = path.file_stem().unwrap_or_default().to_string_lossy();
        let plugin = Plugin { name: format!("plugin:{stem}"), path: path.to_owned() };
        plugin.functions().map(|_| plugin)
    }

    /// Its name in plans and records: `plugin:` and the file's name without its extension.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A barrier for `threads` threads.
    ///
    /// # Errors
    /// When the plugin makes none.
    pub fn barrier(&self, threads: usize) -> Result<PluginBarrier> {
        let Functions { create, wait, destroy } = self.functions()?;
        let inside = Inside::enter(threads);
        // SAFETY: as the header says, it may be called with any number of threads. What it does is the user's choice.
        let barrier = NonNull::new(unsafe { create(threads as c_uint) });
        barrier.map(|barrier| PluginBarrier { barrier, wait, destroy, _inside: inside }).ok_or_else(|| {
            Error::refused(
                format!("make a barrier of {} for {threads} threads", self.name),
                "membar_barrier_create returned NULL",
                "name thread counts that it can do with --threads",
            )
        })
    }

    fn functions(&self) -> Result<Functions> {
        let unusable = |reason: String, advice: &str| {
            Error::usage(format!("use the plugin {}", self.path.display()), reason, advice)
        };
        // The loader would look for a bare name in the system's directories.
        let bare = self.path.parent().is_some_and(|parent| parent.as_os_str().is_empty());
        let path = if bare { Path::new(".").join(&self.path) } else { self.path.clone() };
        let library = Library::open(&path)
            .map_err(|reason| unusable(reason, "name a shared library, as `cc -shared -fPIC` makes one"))?;
        let symbol = |name: &CStr| {
            library.symbol(name).map(NonNull::as_ptr).ok_or_else(|| {
                let reason = format!("it has no {}", name.to_string_lossy());
                unusable(reason, "export the three functions of examples/membar_barrier.h, in C++ as extern \"C\"")
            })
        };
        let create = symbol(c"membar_barrier_create")?;
        let wait = symbol(c"membar_barrier_wait")?;
        let destroy = symbol(c"membar_barrier_destroy")?;
        Ok(Functions {
            // SAFETY: the header declares the function of this name so, and the library stays open.
            create: unsafe { std::mem::transmute::<*mut c_void, Create>(create) },
            // SAFETY: as above.
            wait: unsafe { std::mem::transmute::<*mut c_void, Wait>(wait) },
            // SAFETY: as above.
            destroy: unsafe { std::mem::transmute::<*mut c_void, Destroy>(destroy) },
        })
    }
}

/// While one of these lives, the plugin's code runs in this process, and `exit` is its doing: membar leaves by returning.
#[derive(Debug)]
struct Inside;

/// How many there are.
static INSIDE: AtomicUsize = AtomicUsize::new(0);

impl Inside {
    /// For each of `threads` threads: those that end the process at the same time take one entry each.
    fn enter(threads: usize) -> Inside {
        for _ in 0..threads {
            // SAFETY: the function stays, and needs nothing of what may be gone when it is called. Where the system has no
            // room for it, a plugin's exit goes unnoticed.
            unsafe { libc::atexit(refuse_exit) };
        }
        // Relaxed: read by the thread that ends the process, whoever it is.
        INSIDE.fetch_add(1, Ordering::Relaxed);
        Inside
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        INSIDE.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Called when the process ends: a plugin that ends it must not look like success.
extern "C" fn refuse_exit() {
    const SAID: &str = "membar: could not go on measuring: the plugin ended the process; mend it, or leave it out\n";
    if INSIDE.load(Ordering::Relaxed) > 0 {
        // SAFETY: writes bytes that live as long as the program, and ends the process at once.
        unsafe {
            libc::write(libc::STDERR_FILENO, SAID.as_ptr().cast(), SAID.len());
            libc::_exit(1)
        }
    }
}

// SAFETY: the header asks of a plugin that all threads of a team may wait at its barrier at the same time. It is made and
// destroyed by one thread, while no other has it.
unsafe impl Sync for PluginBarrier {}

impl Barrier for PluginBarrier {
    /// The thread's number.
    type Member = c_uint;

    fn member(&self, thread: usize) -> c_uint {
        thread as c_uint
    }

    #[inline]
    fn wait(&self, thread: &mut c_uint) {
        // SAFETY: the barrier was made by the same plugin and is not destroyed yet; each thread has a number of its own.
        unsafe { (self.wait)(self.barrier.as_ptr(), *thread) }
    }
}

impl Drop for PluginBarrier {
    fn drop(&mut self) {
        // SAFETY: made by the same plugin, destroyed once, and nobody waits at it any more.
        unsafe { (self.destroy)(self.barrier.as_ptr()) }
    }
}
