//! `cuGetProcAddress`: how the run time of CUDA 11.3 and later finds the driver's functions.
#![allow(unsafe_code)]

use crate::driver::{SUCCESS, Status};
use crate::{find, hooks, job};
use std::ffi::{CStr, c_char, c_int, c_void};

/// `CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM`.
const PER_THREAD: u64 = 2;

hooks! {
    LOOKUP:
    cuGetProcAddress = "cuGetProcAddress" 11030 legacy
        (name: *const c_char, found: *mut *mut c_void, version: c_int, flags: u64) => |real| {
            // SAFETY: the arguments are the caller's.
            unsafe { replaced(real(name, found, version, flags), name, found, (version, flags)) }
        };
    cuGetProcAddress_v2 = "cuGetProcAddress" 12000 legacy
        (name: *const c_char, found: *mut *mut c_void, version: c_int, flags: u64, status: *mut c_int) => |real| {
            // SAFETY: the arguments are the caller's.
            unsafe { replaced(real(name, found, version, flags, status), name, found, (version, flags)) }
        };
}

/// Puts our function in place of the one that was found: that with the parameters of the version asked for.
unsafe fn replaced(
    status: Status,
    name: *const c_char,
    found: *mut *mut c_void,
    (version, flags): (c_int, u64),
) -> Status {
    if status != SUCCESS || name.is_null() || found.is_null() || !job::is_wanted() {
        return status;
    }
    // SAFETY: the driver has read the name and written the answer.
    let (name, answer) = unsafe { (CStr::from_ptr(name), *found) };
    let Ok(name) = name.to_str() else { return status };
    if answer.is_null() {
        return status;
    }
    let same = find::all().filter(|hook| hook.base == name && hook.since <= version);
    let per_thread = flags & PER_THREAD != 0;
    // A function that has no form for threads has the other one for both.
    let best = same.max_by_key(|hook| (hook.per_thread == per_thread, hook.since));
    if let Some(hook) = best {
        find::adopt(hook, answer);
        // SAFETY: the driver has written there.
        unsafe { *found = hook.ours.cast_mut() };
    }
    status
}

#[cfg(test)]
mod tests {
    use crate::find::all;
    use std::collections::BTreeSet;

    #[test]
    fn no_function_stands_twice_in_the_tables() {
        let mut names = BTreeSet::new();
        for hook in all() {
            assert!(names.insert(hook.symbol), "{:?}", hook.symbol);
            let symbol = hook.symbol.to_str().unwrap();
            let rest = symbol.strip_prefix(hook.base).unwrap_or_else(|| panic!("{symbol}"));
            let per_thread = rest.ends_with("_ptsz") || rest.ends_with("_ptds");
            assert_eq!(per_thread, hook.per_thread, "{symbol}");
        }
        assert!(names.len() > 50);
    }

    #[test]
    fn a_form_for_threads_has_the_version_of_the_other() {
        for hook in all().filter(|hook| hook.per_thread) {
            let others = all().filter(|other| other.base == hook.base && !other.per_thread);
            assert!(others.count() >= 1, "{:?} has no other form", hook.symbol);
        }
    }
}
