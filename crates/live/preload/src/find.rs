//! Finding functions, before and behind us.
//!
//! Our `dlsym` must not stand between a caller and `RTLD_NEXT`: the C library tells the caller by the address that the
//! call returns to, and what is next after us is not what is next after the caller. So it is a few instructions that
//! ask [`choose`] and then jump, with the caller's own return address, to the real one. `dlvsym` is left alone: it is
//! how other libraries of our kind find the real `dlsym`, and the driver's functions have no versions.
#![allow(unsafe_code)]

use crate::driver::Hook;
use crate::{captures, job, launches, lookup, memory};
use std::ffi::{CStr, c_char, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

type Dlsym = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;

/// The versions under which the C library has had `dlsym`, the newest first.
const VERSIONS: [&CStr; 3] = [c"GLIBC_2.34", c"GLIBC_2.17", c"GLIBC_2.2.5"];
const DRIVER: &CStr = c"libcuda.so.1";

/// What our `dlsym` does: answer, or jump to the real one.
#[repr(C)]
pub struct Choice {
    /// The answer, or 1 for none.
    answer: usize,
    /// The real `dlsym`.
    real: usize,
}

/// The answer that is none: no function has this address.
const JUMP: usize = 1;

/// Our `dlsym`: the driver's functions by our names, everything else as it is.
///
/// # Safety
/// As that of the C library.
#[cfg(all(not(test), target_arch = "x86_64"))]
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    core::arch::naked_asm!(
        "push rdi",
        "push rsi",
        "sub rsp, 8",
        "call {choose}",
        "add rsp, 8",
        "pop rsi",
        "pop rdi",
        "cmp rax, {jump}",
        "je 2f",
        "ret",
        "2:",
        "jmp rdx",
        choose = sym choose,
        jump = const JUMP,
    )
}

/// The same for other processors, where `RTLD_NEXT` of a library behind us begins after us.
///
/// # Safety
/// As that of the C library.
#[cfg(not(all(not(test), target_arch = "x86_64")))]
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    // SAFETY: the arguments are the caller's, handed on.
    unsafe {
        let choice = choose(handle, name);
        if choice.answer != JUMP {
            return choice.answer as *mut c_void;
        }
        std::mem::transmute::<usize, Dlsym>(choice.real)(handle, name)
    }
}

/// What `dlsym` answers.
///
/// # Safety
/// `name` is null or ends with zero.
pub unsafe extern "C" fn choose(handle: *mut c_void, name: *const c_char) -> Choice {
    let Some(real) = real_dlsym() else { return Choice { answer: 0, real: 0 } };
    let jump = Choice { answer: JUMP, real: real as usize };
    if name.is_null() || handle == libc::RTLD_NEXT {
        return jump;
    }
    // SAFETY: by contract.
    let name = unsafe { CStr::from_ptr(name) };
    if name == c"dlsym" && job::is_wanted() {
        return Choice { answer: dlsym as *const () as usize, ..jump };
    }
    let Some(hook) = hooked(name) else { return jump };
    // SAFETY: both are what the caller gave.
    let found = unsafe { real(handle, name.as_ptr()) };
    let found =
        if found.cast_const() == hook.ours || found.is_null() && handle == libc::RTLD_DEFAULT {
            hook.real()
        } else {
            found
        };
    if found.is_null() || !job::is_wanted() {
        return Choice { answer: found as usize, ..jump };
    }
    adopt(hook, found);
    Choice { answer: hook.ours as usize, ..jump }
}

/// Notes what the driver gave for the function that ours stands in place of. A driver that looks its own functions up
/// in the whole program gives ours, which is not it.
pub fn adopt(hook: &Hook, found: *mut c_void) {
    if found.cast_const() == hook.ours {
        return;
    }
    let none = std::ptr::null_mut();
    // The first that was found stays: all of them are the driver's.
    let _ = hook.real.compare_exchange(none, found, Ordering::AcqRel, Ordering::Acquire);
}

/// Our function in place of the driver's of that name.
fn hooked(name: &CStr) -> Option<&'static Hook> {
    if !name.to_bytes().starts_with(b"cu") {
        return None;
    }
    all().find(|hook| hook.symbol == name)
}

/// All our functions.
pub fn all() -> impl Iterator<Item = &'static Hook> {
    let tables = [launches::LAUNCHES, memory::MEMORY, captures::CAPTURES, lookup::LOOKUP];
    tables.into_iter().flatten()
}

/// The driver's function of that name, if the driver is loaded. `ours` is never taken for it.
pub fn in_driver(name: &CStr, ours: *const c_void) -> *mut c_void {
    let Some(real) = real_dlsym() else { return std::ptr::null_mut() };
    // SAFETY: names end with zero; a driver that is not loaded is not loaded for this.
    unsafe {
        // Behind us: another library of our kind, or the driver that the program links.
        let next = real(libc::RTLD_NEXT, name.as_ptr());
        if !next.is_null() && next.cast_const() != ours {
            return next;
        }
        let driver = libc::dlopen(DRIVER.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD);
        if driver.is_null() {
            return std::ptr::null_mut();
        }
        let found = real(driver, name.as_ptr());
        libc::dlclose(driver);
        if found.cast_const() == ours { std::ptr::null_mut() } else { found }
    }
}

/// The real `dlsym`.
fn real_dlsym() -> Option<Dlsym> {
    static REAL: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
    let mut found = REAL.load(Ordering::Acquire);
    for version in VERSIONS {
        if found.is_null() {
            // SAFETY: both names end with zero.
            found = unsafe { libc::dlvsym(libc::RTLD_NEXT, c"dlsym".as_ptr(), version.as_ptr()) };
            REAL.store(found, Ordering::Release);
        }
    }
    // SAFETY: the function of this name has this type.
    (!found.is_null()).then(|| unsafe { std::mem::transmute::<*mut c_void, Dlsym>(found) })
}
