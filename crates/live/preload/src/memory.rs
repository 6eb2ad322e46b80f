//! Calls that take and give back device memory, or tell how much there is.
#![allow(unsafe_code)]

use crate::driver::{self, Opaque, SUCCESS, Status};
use crate::ledger::{Allocation, Ledger};
use crate::{hooks, job};
use std::ffi::c_int;

/// The beginning of `CUmemAllocationProp`: what it is of, and where.
#[repr(C)]
pub struct Properties {
    kind: c_int,
    handle_types: c_int,
    place: c_int,
    place_id: c_int,
}

/// `CU_MEM_LOCATION_TYPE_DEVICE`.
const ON_DEVICE: c_int = 1;

hooks! {
    MEMORY:
    cuMemAlloc_v2 = "cuMemAlloc" 3020 legacy (out: *mut u64, bytes: usize) => |real| {
        // SAFETY: the arguments are the caller's.
        unsafe { allocate(out, bytes, || real(out, bytes)) }
    };
    cuMemAllocManaged = "cuMemAllocManaged" 6000 legacy (out: *mut u64, bytes: usize, flags: u32) => |real| {
        // SAFETY: the arguments are the caller's.
        unsafe { allocate(out, bytes, || real(out, bytes, flags)) }
    };
    cuMemAllocPitch_v2 = "cuMemAllocPitch" 3020 legacy (out: *mut u64, pitch: *mut usize, width: usize, height: usize, element: u32) => |real| {
        // SAFETY: the arguments are the caller's.
        unsafe { allocate_rows(out, pitch, (width, height), || real(out, pitch, width, height, element)) }
    };
    cuMemAllocAsync = "cuMemAllocAsync" 11020 legacy (out: *mut u64, bytes: usize, stream: Opaque) => |real| {
        // SAFETY: the arguments are the caller's.
        unsafe { allocate(out, bytes, || real(out, bytes, stream)) }
    };
    cuMemAllocFromPoolAsync = "cuMemAllocFromPoolAsync" 11020 legacy (out: *mut u64, bytes: usize, pool: Opaque, stream: Opaque) => |real| {
        // SAFETY: the arguments are the caller's.
        unsafe { allocate(out, bytes, || real(out, bytes, pool, stream)) }
    };
    cuMemFreeAsync = "cuMemFreeAsync" 11020 legacy (pointer: u64, stream: Opaque) => |real| {
        // SAFETY: the arguments are the caller's.
        free(pointer, || unsafe { real(pointer, stream) })
    };
    cuMemAllocAsync_ptsz = "cuMemAllocAsync" 11020 per_thread (out: *mut u64, bytes: usize, stream: Opaque) => |real| {
        // SAFETY: the arguments are the caller's.
        unsafe { allocate(out, bytes, || real(out, bytes, stream)) }
    };
    cuMemAllocFromPoolAsync_ptsz = "cuMemAllocFromPoolAsync" 11020 per_thread (out: *mut u64, bytes: usize, pool: Opaque, stream: Opaque) => |real| {
        // SAFETY: the arguments are the caller's.
        unsafe { allocate(out, bytes, || real(out, bytes, pool, stream)) }
    };
    cuMemFreeAsync_ptsz = "cuMemFreeAsync" 11020 per_thread (pointer: u64, stream: Opaque) => |real| {
        // SAFETY: the arguments are the caller's.
        free(pointer, || unsafe { real(pointer, stream) })
    };
    cuMemFree_v2 = "cuMemFree" 3020 legacy (pointer: u64) => |real| {
        // SAFETY: the arguments are the caller's.
        free(pointer, || unsafe { real(pointer) })
    };
    cuMemCreate = "cuMemCreate" 10020 legacy (out: *mut u64, bytes: usize, properties: *const Properties, flags: u64) => |real| {
        // SAFETY: the arguments are the caller's.
        unsafe { create(out, bytes, properties, || real(out, bytes, properties, flags)) }
    };
    cuMemRelease = "cuMemRelease" 10020 legacy (handle: u64) => |real| {
        // SAFETY: the arguments are the caller's.
        after(unsafe { real(handle) }, |ledger| ledger.release(handle))
    };
    cuMemRetainAllocationHandle = "cuMemRetainAllocationHandle" 11000 legacy (out: *mut u64, address: Opaque) => |real| {
        // SAFETY: the arguments are the caller's.
        unsafe { retain(out, real(out, address)) }
    };
    cuMemMap = "cuMemMap" 10020 legacy (address: u64, bytes: usize, offset: usize, handle: u64, flags: u64) => |real| {
        // SAFETY: the arguments are the caller's.
        let status = unsafe { real(address, bytes, offset, handle, flags) };
        after(status, |ledger| {
            ledger.map(address, bytes as u64, handle);
            0
        })
    };
    cuMemUnmap = "cuMemUnmap" 10020 legacy (address: u64, bytes: usize) => |real| {
        // SAFETY: the arguments are the caller's.
        after(unsafe { real(address, bytes) }, |ledger| ledger.unmap(address, bytes as u64))
    };
    cuCtxDestroy_v2 = "cuCtxDestroy" 4000 legacy (context: Opaque) => |real| {
        // SAFETY: the arguments are the caller's.
        after(unsafe { real(context) }, |ledger| ledger.take_context(context as usize))
    };
    cuMemGetInfo_v2 = "cuMemGetInfo" 3020 legacy (free: *mut usize, total: *mut usize) => |real| {
        // SAFETY: the arguments are the caller's.
        unsafe { info(free, total, real(free, total)) }
    };
    cuDeviceTotalMem_v2 = "cuDeviceTotalMem" 3020 legacy (bytes: *mut usize, device: c_int) => |real| {
        // SAFETY: the arguments are the caller's.
        unsafe { total(bytes, real(bytes, device)) }
    };
}

/// An allocation of known size: asked for, made, and noted.
unsafe fn allocate(out: *mut u64, bytes: usize, call: impl FnOnce() -> Status) -> Status {
    let Some(job) = job::get().filter(|_| bytes > 0 && !out.is_null()) else { return call() };
    if let Err(status) = job.reserve(bytes as u64) {
        return status;
    }
    let status = call();
    if status != SUCCESS {
        job.release(bytes as u64);
        return status;
    }
    let allocation = Allocation { bytes: bytes as u64, context: driver::context() as usize };
    // SAFETY: the driver has written there.
    job.ledger().add(unsafe { *out }, allocation);
    status
}

/// An allocation whose rows the driver makes as long as it likes: what that adds is asked for afterwards, and the
/// whole is given back where it is too much.
unsafe fn allocate_rows(
    out: *mut u64,
    pitch: *mut usize,
    (width, height): (usize, usize),
    call: impl FnOnce() -> Status,
) -> Status {
    let asked = width.saturating_mul(height);
    // SAFETY: as the caller's.
    let status = unsafe { allocate(out, asked, call) };
    let Some(job) = job::get().filter(|_| status == SUCCESS && asked > 0) else { return status };
    // SAFETY: the driver has written to both.
    let (pointer, pitch) = unsafe { (*out, *pitch) };
    let added = pitch.saturating_mul(height).saturating_sub(asked) as u64;
    if let Err(refused) = job.reserve(added) {
        // SAFETY: it was allocated just now and no other thread knows of it.
        unsafe { cuMemFree_v2(pointer) };
        return refused;
    }
    let mut ledger = job.ledger();
    if let Some(known) = ledger.take(pointer) {
        ledger.add(pointer, Allocation { bytes: known.bytes + added, ..known });
    }
    status
}

/// Taken out of the ledger first: the driver may give the address to another thread at once.
fn free(pointer: u64, call: impl FnOnce() -> Status) -> Status {
    let Some(job) = job::get() else { return call() };
    let known = job.ledger().take(pointer);
    let status = call();
    match known {
        Some(allocation) if status == SUCCESS => job.release(allocation.bytes),
        Some(allocation) => job.ledger().add(pointer, allocation),
        None => {}
    }
    status
}

/// Physical memory; that of the host does not count.
unsafe fn create(
    out: *mut u64,
    bytes: usize,
    properties: *const Properties,
    call: impl FnOnce() -> Status,
) -> Status {
    // SAFETY: null or the caller's.
    let is_here = unsafe { properties.as_ref() }.is_some_and(|of| of.place == ON_DEVICE);
    let Some(job) = job::get().filter(|_| is_here && bytes > 0 && !out.is_null()) else {
        return call();
    };
    if let Err(status) = job.reserve(bytes as u64) {
        return status;
    }
    let status = call();
    if status == SUCCESS {
        // SAFETY: the driver has written there.
        job.ledger().create(unsafe { *out }, bytes as u64);
    } else {
        job.release(bytes as u64);
    }
    status
}

unsafe fn retain(out: *mut u64, status: Status) -> Status {
    after(status, |ledger| {
        // SAFETY: the driver has written there.
        ledger.retain(unsafe { *out });
        0
    })
}

/// Notes what a call did that went well, and gives back what it freed.
fn after(status: Status, note: impl FnOnce(&mut Ledger) -> u64) -> Status {
    if let Some(job) = job::get().filter(|_| status == SUCCESS) {
        let freed = note(&mut job.ledger());
        job.release(freed);
    }
    status
}

/// The cap is all there is, and what the job uses is all that is used of it.
unsafe fn info(free: *mut usize, total: *mut usize, status: Status) -> Status {
    let cap = job::get().filter(|_| status == SUCCESS).and_then(|job| job.cap_and_used());
    if let Some((cap, used)) = cap {
        let lower = |place: *mut usize, bound: u64| {
            // SAFETY: null, or the driver has written there.
            if let Some(place) = unsafe { place.as_mut() } {
                *place = (*place).min(usize::try_from(bound).unwrap_or(usize::MAX));
            }
        };
        lower(total, cap);
        lower(free, cap.saturating_sub(used));
    }
    status
}

unsafe fn total(bytes: *mut usize, status: Status) -> Status {
    // SAFETY: as the caller's.
    unsafe { info(std::ptr::null_mut(), bytes, status) }
}
