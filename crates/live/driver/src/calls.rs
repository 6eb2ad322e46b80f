//! The library, its functions, and a descriptor of a process.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// `CUDA_ERROR_NOT_INITIALIZED` of `cuda.h`.
const NOT_INITIALIZED: c_int = 3;

/// `CUcheckpointLockArgs` of `cuda.h`: how long the lock is waited for, and room for what may come.
#[repr(C)]
struct LockArguments {
    timeout_ms: c_uint,
    reserved: c_uint,
    reserved_words: [u64; 7],
}

type Init = unsafe extern "C" fn(c_uint) -> c_int;
type GetState = unsafe extern "C" fn(c_int, *mut c_int) -> c_int;
type Act = unsafe extern "C" fn(c_int, *mut c_void) -> c_int;
type NameOf = unsafe extern "C" fn(c_int, *mut *const c_char) -> c_int;

/// Where a process stands, as the driver says (`CUprocessState`).
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Stage {
    /// It uses the driver as ever.
    Running,
    /// Its calls of the driver wait.
    Locked,
    /// What it had on its GPUs is in its host memory.
    Checkpointed,
    /// A call failed, and the driver cannot bring it back.
    Failed,
}

/// Why a call did not do what it should.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// There is no library, or it lacks a function.
    #[error("the driver cannot put processes aside: {0}")]
    Missing(String),
    /// The driver said no.
    #[error("{call} of process {pid}: {name} ({code})")]
    Call {
        /// Which.
        call: &'static str,
        /// Of which process.
        pid: i32,
        /// The driver's number.
        code: i32,
        /// Its name for it.
        name: String,
    },
}

/// The driver's functions. The library stays loaded as long as the process lives.
pub struct Calls {
    init: Init,
    get_state: GetState,
    lock: Act,
    checkpoint: Act,
    restore: Act,
    unlock: Act,
    name_of: Option<NameOf>,
}

impl Calls {
    /// Loads the driver's library, the usual one unless another is named.
    pub fn load(library: Option<&Path>) -> Result<Calls, Refusal> {
        let path = library.unwrap_or(Path::new("libcuda.so.1"));
        let missing = || Refusal::Missing(format!("{}: {}", path.display(), trouble()));
        let name = CString::new(path.as_os_str().as_bytes()).map_err(|_| missing())?;
        // SAFETY: the name ends with zero. What the library does when it is loaded is the driver's.
        let library = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if library.is_null() {
            return Err(missing());
        }
        let find = |name: &CStr| {
            // SAFETY: the library is loaded and the name ends with zero.
            let found = unsafe { libc::dlsym(library, name.as_ptr()) };
            (!found.is_null()).then_some(found)
        };
        let need = |name: &CStr| {
            let lacks = || format!("{} has no {}", path.display(), name.to_string_lossy());
            find(name).ok_or_else(|| Refusal::Missing(lacks()))
        };
        // SAFETY: these are the types that cuda.h of CUDA 12.8 and later declares for these names.
        unsafe {
            Ok(Calls {
                init: std::mem::transmute::<*mut c_void, Init>(need(c"cuInit")?),
                get_state: std::mem::transmute::<*mut c_void, GetState>(need(
                    c"cuCheckpointProcessGetState",
                )?),
                lock: std::mem::transmute::<*mut c_void, Act>(need(c"cuCheckpointProcessLock")?),
                checkpoint: std::mem::transmute::<*mut c_void, Act>(need(
                    c"cuCheckpointProcessCheckpoint",
                )?),
                restore: std::mem::transmute::<*mut c_void, Act>(need(
                    c"cuCheckpointProcessRestore",
                )?),
                unlock: std::mem::transmute::<*mut c_void, Act>(need(
                    c"cuCheckpointProcessUnlock",
                )?),
                name_of: find(c"cuGetErrorName")
                    .map(|found| std::mem::transmute::<*mut c_void, NameOf>(found)),
            })
        }
    }

    /// Where a process stands. A process that has no context of the driver is refused.
    pub fn stage(&self, pid: i32) -> Result<Stage, Refusal> {
        let mut state: c_int = -1;
        // SAFETY: the driver writes one number.
        let mut code = unsafe { (self.get_state)(pid, &mut state) };
        if code == NOT_INITIALIZED {
            // SAFETY: flags must be zero. Some versions of the driver need it, and a process without a GPU does not.
            code = unsafe { (self.init)(0) };
            if code == 0 {
                // SAFETY: as above.
                code = unsafe { (self.get_state)(pid, &mut state) };
            }
        }
        self.check("cuCheckpointProcessGetState", pid, code)?;
        match state {
            0 => Ok(Stage::Running),
            1 => Ok(Stage::Locked),
            2 => Ok(Stage::Checkpointed),
            _ => Ok(Stage::Failed),
        }
    }

    /// Makes its calls of the driver wait, once what it gave the GPU is done; gives up after a while.
    pub fn lock(&self, pid: i32, timeout_ms: u32) -> Result<(), Refusal> {
        let mut arguments = LockArguments { timeout_ms, reserved: 0, reserved_words: [0; 7] };
        // SAFETY: the arguments have the size that the driver expects and live until it comes back.
        let code = unsafe { (self.lock)(pid, (&raw mut arguments).cast()) };
        self.check("cuCheckpointProcessLock", pid, code)
    }

    /// Moves what it has on its GPUs to host memory.
    pub fn checkpoint(&self, pid: i32) -> Result<(), Refusal> {
        // SAFETY: null stands for no arguments.
        let code = unsafe { (self.checkpoint)(pid, std::ptr::null_mut()) };
        self.check("cuCheckpointProcessCheckpoint", pid, code)
    }

    /// Moves it back.
    pub fn restore(&self, pid: i32) -> Result<(), Refusal> {
        // SAFETY: null stands for no arguments.
        let code = unsafe { (self.restore)(pid, std::ptr::null_mut()) };
        self.check("cuCheckpointProcessRestore", pid, code)
    }

    /// Lets its calls of the driver go on.
    pub fn unlock(&self, pid: i32) -> Result<(), Refusal> {
        // SAFETY: null stands for no arguments.
        let code = unsafe { (self.unlock)(pid, std::ptr::null_mut()) };
        self.check("cuCheckpointProcessUnlock", pid, code)
    }

    fn check(&self, call: &'static str, pid: i32, code: c_int) -> Result<(), Refusal> {
        if code == 0 {
            return Ok(());
        }
        let mut name: *const c_char = std::ptr::null();
        if let Some(name_of) = self.name_of {
            // SAFETY: the driver writes a pointer to a name that is never freed, or leaves it null.
            unsafe { name_of(code, &mut name) };
        }
        let name = match name.is_null() {
            true => "an error".to_owned(),
            // SAFETY: a name of the driver ends with zero.
            false => unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned(),
        };
        Err(Refusal::Call { call, pid, code, name })
    }
}

/// What the dynamic linker said last.
fn trouble() -> String {
    // SAFETY: the text is copied before the linker is asked anything else.
    unsafe {
        let text = libc::dlerror();
        match text.is_null() {
            true => "it cannot be loaded".to_owned(),
            false => CStr::from_ptr(text).to_string_lossy().into_owned(),
        }
    }
}

/// A process by a descriptor: its number cannot come to mean another one unnoticed.
#[derive(Debug)]
pub struct Identity(OwnedFd);

impl Identity {
    /// The process of that number (`pidfd_open(2)`).
    pub fn of(pid: i32) -> io::Result<Identity> {
        // SAFETY: the call takes two numbers and gives a new descriptor or -1.
        let number = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
        match i32::try_from(number) {
            // SAFETY: the descriptor was just made and belongs to no one else.
            Ok(number) if number >= 0 => Ok(Identity(unsafe { OwnedFd::from_raw_fd(number) })),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Whether it has not ended.
    pub fn lives(&self) -> bool {
        let mut poll = libc::pollfd { fd: self.0.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one structure, which the kernel writes; it does not wait.
        unsafe { libc::poll(&mut poll, 1, 0) == 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_lives_until_it_ends_and_a_number_that_nobody_has_is_refused() {
        let mut child = std::process::Command::new("/bin/sleep").arg("60").spawn().unwrap();
        let identity = Identity::of(child.id() as i32).unwrap();
        assert!(identity.lives());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!identity.lives());
        assert!(Identity::of(i32::MAX).is_err());
    }

    #[test]
    fn a_library_that_is_not_there_is_named() {
        let refusal = Calls::load(Some(Path::new("/nowhere/libcuda.so.1"))).err().unwrap();
        assert!(refusal.to_string().contains("/nowhere/libcuda.so.1"), "{refusal}");
    }
}
