//! The driver's own functions, and what its numbers mean.
#![allow(unsafe_code)]

use crate::find;
use std::ffi::{CStr, c_int, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

/// What a call of the driver returns.
pub type Status = c_int;
/// Pointers of the driver that are only handed on.
pub type Opaque = *mut c_void;

/// All is well.
pub const SUCCESS: Status = 0;
/// `CUDA_ERROR_OUT_OF_MEMORY`.
pub const OUT_OF_MEMORY: Status = 2;
/// `CUDA_ERROR_NOT_INITIALIZED`: also where there is no driver at all.
pub const NOT_INITIALIZED: Status = 3;
/// `CUDA_ERROR_NOT_PERMITTED`: the job was told to stop when its arbiter is gone.
pub const NOT_PERMITTED: Status = 800;

/// One function of the driver that stands behind one of ours.
pub struct Hook {
    /// The name under which the driver exports it.
    pub symbol: &'static CStr,
    /// The name by which `cuGetProcAddress` knows it.
    pub base: &'static str,
    /// The first version of CUDA (as 1000 * major + 10 * minor) with these parameters.
    pub since: c_int,
    /// Whether it is the form for a default stream of each thread.
    pub per_thread: bool,
    /// Our function.
    pub ours: *const c_void,
    /// The driver's, once it is known.
    pub real: &'static AtomicPtr<c_void>,
}

// SAFETY: `ours` is the address of a function, which any thread may call.
unsafe impl Sync for Hook {}

impl Hook {
    /// The driver's function, or null where there is none.
    pub fn real(&self) -> *mut c_void {
        resolve(self.symbol, self.real, self.ours)
    }
}

/// Makes our functions and their table. Each line is a function of the driver: its name, its name for
/// `cuGetProcAddress` with the version of CUDA since which it has these parameters, `legacy` or `per_thread`, its
/// parameters, and what is done in its place, given the driver's own function.
#[macro_export]
macro_rules! hooks {
    ($table:ident: $($name:ident = $base:literal $since:literal $stream:ident
        ($($argument:ident: $type:ty),*) => |$real:ident| $body:expr;)*) => {
        $(
            #[allow(non_snake_case)]
            mod $name {
                pub static REAL: std::sync::atomic::AtomicPtr<std::ffi::c_void> =
                    std::sync::atomic::AtomicPtr::new(std::ptr::null_mut());
            }
            /// The driver's function of this name, behind our gate.
            ///
            /// # Safety
            /// As the driver's.
            #[cfg_attr(not(test), unsafe(no_mangle))]
            #[allow(non_snake_case, clippy::too_many_arguments)]
            pub unsafe extern "C" fn $name($($argument: $type),*) -> $crate::driver::Status {
                type Real = unsafe extern "C" fn($($type),*) -> $crate::driver::Status;
                let symbol = $crate::driver::c_name(concat!(stringify!($name), "\0"));
                let found = $crate::driver::resolve(symbol, &$name::REAL, $name as *const _);
                if found.is_null() {
                    return $crate::driver::NOT_INITIALIZED;
                }
                // SAFETY: the driver's function of this name has this type.
                let $real = unsafe { std::mem::transmute::<*mut std::ffi::c_void, Real>(found) };
                $body
            }
        )*
        /// All functions of this file.
        pub static $table: &[$crate::driver::Hook] = &[$($crate::driver::Hook {
            symbol: $crate::driver::c_name(concat!(stringify!($name), "\0")),
            base: $base,
            since: $since,
            per_thread: $crate::hooks!(@stream $stream),
            ours: $name as *const std::ffi::c_void,
            real: &$name::REAL,
        }),*];
    };
    (@stream legacy) => { false };
    (@stream per_thread) => { true };
}

/// A name with its final zero.
pub const fn c_name(name: &'static str) -> &'static CStr {
    match CStr::from_bytes_with_nul(name.as_bytes()) {
        Ok(name) => name,
        Err(_) => c"",
    }
}

/// The driver's function of that name, remembered in `known`. Never `ours`.
pub fn resolve(name: &CStr, known: &AtomicPtr<c_void>, ours: *const c_void) -> *mut c_void {
    let found = known.load(Ordering::Acquire);
    if !found.is_null() {
        return found;
    }
    let found = find::in_driver(name, ours);
    if !found.is_null() {
        known.store(found, Ordering::Release);
    }
    found
}

macro_rules! plain {
    ($(#[$doc:meta])* $function:ident = $name:literal ($($argument:ident: $type:ty),*)) => {
        $(#[$doc])*
        pub(crate) fn $function($($argument: $type),*) -> Status {
            static REAL: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
            let found = resolve(c_name(concat!($name, "\0")), &REAL, std::ptr::null());
            if found.is_null() {
                return NOT_INITIALIZED;
            }
            // SAFETY: the driver's function of this name has this type, and is given live pointers only.
            unsafe {
                let real = std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($type),*) -> Status>(found);
                real($($argument),*)
            }
        }
    };
}

plain! {
    /// Waits until the GPU has done all work of the calling thread's context.
    synchronize = "cuCtxSynchronize" ()
}
plain! {
    /// Makes a context the calling thread's.
    set_context = "cuCtxSetCurrent" (context: Opaque)
}
plain! {
    /// Tells the calling thread's context.
    get_context = "cuCtxGetCurrent" (context: &mut Opaque)
}

/// The calling thread's context; null if it has none.
pub fn context() -> Opaque {
    let mut context = std::ptr::null_mut();
    match get_context(&mut context) {
        SUCCESS => context,
        _ => std::ptr::null_mut(),
    }
}
