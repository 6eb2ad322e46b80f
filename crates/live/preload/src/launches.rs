//! Calls that give the GPU work: kernels, graphs, copies, fills.
#![allow(unsafe_code)]

use crate::driver::Opaque;
use crate::{hooks, turns};

macro_rules! launches {
    ($($name:ident = $base:literal $since:literal $stream:ident ($($argument:ident: $type:ty),*);)*) => {
        hooks! {
            LAUNCHES:
            $($name = $base $since $stream ($($argument: $type),*) => |real| {
                // SAFETY: the arguments are the caller's.
                turns::pass(|| unsafe { real($($argument),*) })
            };)*
        }
    };
}

launches! {
    cuLaunchKernel = "cuLaunchKernel" 4000 legacy
        (kernel: Opaque, grid_x: u32, grid_y: u32, grid_z: u32, block_x: u32, block_y: u32, block_z: u32, shared: u32, stream: Opaque, parameters: Opaque, extra: Opaque);
    cuLaunchKernel_ptsz = "cuLaunchKernel" 7000 per_thread
        (kernel: Opaque, grid_x: u32, grid_y: u32, grid_z: u32, block_x: u32, block_y: u32, block_z: u32, shared: u32, stream: Opaque, parameters: Opaque, extra: Opaque);
    cuLaunchKernelEx = "cuLaunchKernelEx" 11060 legacy
        (config: Opaque, kernel: Opaque, parameters: Opaque, extra: Opaque);
    cuLaunchKernelEx_ptsz = "cuLaunchKernelEx" 11060 per_thread
        (config: Opaque, kernel: Opaque, parameters: Opaque, extra: Opaque);
    cuLaunchCooperativeKernel = "cuLaunchCooperativeKernel" 9000 legacy
        (kernel: Opaque, grid_x: u32, grid_y: u32, grid_z: u32, block_x: u32, block_y: u32, block_z: u32, shared: u32, stream: Opaque, parameters: Opaque);
    cuLaunchCooperativeKernel_ptsz = "cuLaunchCooperativeKernel" 9000 per_thread
        (kernel: Opaque, grid_x: u32, grid_y: u32, grid_z: u32, block_x: u32, block_y: u32, block_z: u32, shared: u32, stream: Opaque, parameters: Opaque);
    cuGraphLaunch = "cuGraphLaunch" 10000 legacy
        (graph: Opaque, stream: Opaque);
    cuGraphLaunch_ptsz = "cuGraphLaunch" 10000 per_thread
        (graph: Opaque, stream: Opaque);
    cuMemcpy = "cuMemcpy" 4000 legacy
        (to: u64, from: u64, bytes: usize);
    cuMemcpy_ptds = "cuMemcpy" 7000 per_thread
        (to: u64, from: u64, bytes: usize);
    cuMemcpyHtoD_v2 = "cuMemcpyHtoD" 3020 legacy
        (to: u64, from: Opaque, bytes: usize);
    cuMemcpyHtoD_v2_ptds = "cuMemcpyHtoD" 7000 per_thread
        (to: u64, from: Opaque, bytes: usize);
    cuMemcpyDtoH_v2 = "cuMemcpyDtoH" 3020 legacy
        (to: Opaque, from: u64, bytes: usize);
    cuMemcpyDtoH_v2_ptds = "cuMemcpyDtoH" 7000 per_thread
        (to: Opaque, from: u64, bytes: usize);
    cuMemcpyDtoD_v2 = "cuMemcpyDtoD" 3020 legacy
        (to: u64, from: u64, bytes: usize);
    cuMemcpyDtoD_v2_ptds = "cuMemcpyDtoD" 7000 per_thread
        (to: u64, from: u64, bytes: usize);
    cuMemcpyAsync = "cuMemcpyAsync" 4000 legacy
        (to: u64, from: u64, bytes: usize, stream: Opaque);
    cuMemcpyAsync_ptsz = "cuMemcpyAsync" 7000 per_thread
        (to: u64, from: u64, bytes: usize, stream: Opaque);
    cuMemcpyHtoDAsync_v2 = "cuMemcpyHtoDAsync" 3020 legacy
        (to: u64, from: Opaque, bytes: usize, stream: Opaque);
    cuMemcpyHtoDAsync_v2_ptsz = "cuMemcpyHtoDAsync" 7000 per_thread
        (to: u64, from: Opaque, bytes: usize, stream: Opaque);
    cuMemcpyDtoHAsync_v2 = "cuMemcpyDtoHAsync" 3020 legacy
        (to: Opaque, from: u64, bytes: usize, stream: Opaque);
    cuMemcpyDtoHAsync_v2_ptsz = "cuMemcpyDtoHAsync" 7000 per_thread
        (to: Opaque, from: u64, bytes: usize, stream: Opaque);
    cuMemcpyDtoDAsync_v2 = "cuMemcpyDtoDAsync" 3020 legacy
        (to: u64, from: u64, bytes: usize, stream: Opaque);
    cuMemcpyDtoDAsync_v2_ptsz = "cuMemcpyDtoDAsync" 7000 per_thread
        (to: u64, from: u64, bytes: usize, stream: Opaque);
    cuMemcpyPeerAsync = "cuMemcpyPeerAsync" 4000 legacy
        (to: u64, to_context: Opaque, from: u64, from_context: Opaque, bytes: usize, stream: Opaque);
    cuMemcpyPeerAsync_ptsz = "cuMemcpyPeerAsync" 7000 per_thread
        (to: u64, to_context: Opaque, from: u64, from_context: Opaque, bytes: usize, stream: Opaque);
    cuMemcpy2DAsync_v2 = "cuMemcpy2DAsync" 3020 legacy
        (copy: Opaque, stream: Opaque);
    cuMemcpy2DAsync_v2_ptsz = "cuMemcpy2DAsync" 7000 per_thread
        (copy: Opaque, stream: Opaque);
    cuMemcpy3DAsync_v2 = "cuMemcpy3DAsync" 3020 legacy
        (copy: Opaque, stream: Opaque);
    cuMemcpy3DAsync_v2_ptsz = "cuMemcpy3DAsync" 7000 per_thread
        (copy: Opaque, stream: Opaque);
    cuMemsetD8Async = "cuMemsetD8Async" 3020 legacy
        (to: u64, value: u8, count: usize, stream: Opaque);
    cuMemsetD8Async_ptsz = "cuMemsetD8Async" 7000 per_thread
        (to: u64, value: u8, count: usize, stream: Opaque);
    cuMemsetD16Async = "cuMemsetD16Async" 3020 legacy
        (to: u64, value: u16, count: usize, stream: Opaque);
    cuMemsetD16Async_ptsz = "cuMemsetD16Async" 7000 per_thread
        (to: u64, value: u16, count: usize, stream: Opaque);
    cuMemsetD32Async = "cuMemsetD32Async" 3020 legacy
        (to: u64, value: u32, count: usize, stream: Opaque);
    cuMemsetD32Async_ptsz = "cuMemsetD32Async" 7000 per_thread
        (to: u64, value: u32, count: usize, stream: Opaque);
}
