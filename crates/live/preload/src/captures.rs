//! Streams whose work is recorded into a graph and not done: it needs no turn, and waiting for the GPU would spoil it.
#![allow(unsafe_code)]

use crate::driver::Opaque;
use crate::{hooks, turns};
use std::ffi::c_int;

hooks! {
    CAPTURES:
    cuStreamBeginCapture_v2 = "cuStreamBeginCapture" 10010 legacy (stream: Opaque, mode: c_int) => |real| {
        // SAFETY: the arguments are the caller's.
        turns::begin_capture(|| unsafe { real(stream, mode) })
    };
    cuStreamBeginCaptureToGraph = "cuStreamBeginCaptureToGraph" 12030 legacy
        (stream: Opaque, graph: Opaque, after: Opaque, edges: Opaque, count: usize, mode: c_int) => |real| {
        // SAFETY: the arguments are the caller's.
        turns::begin_capture(|| unsafe { real(stream, graph, after, edges, count, mode) })
    };
    cuStreamEndCapture = "cuStreamEndCapture" 10000 legacy (stream: Opaque, graph: Opaque) => |real| {
        // SAFETY: the arguments are the caller's.
        turns::end_capture(|| unsafe { real(stream, graph) })
    };
    cuStreamBeginCapture_v2_ptsz = "cuStreamBeginCapture" 10010 per_thread (stream: Opaque, mode: c_int) => |real| {
        // SAFETY: the arguments are the caller's.
        turns::begin_capture(|| unsafe { real(stream, mode) })
    };
    cuStreamBeginCaptureToGraph_ptsz = "cuStreamBeginCaptureToGraph" 12030 per_thread
        (stream: Opaque, graph: Opaque, after: Opaque, edges: Opaque, count: usize, mode: c_int) => |real| {
        // SAFETY: the arguments are the caller's.
        turns::begin_capture(|| unsafe { real(stream, graph, after, edges, count, mode) })
    };
    cuStreamEndCapture_ptsz = "cuStreamEndCapture" 10000 per_thread (stream: Opaque, graph: Opaque) => |real| {
        // SAFETY: the arguments are the caller's.
        turns::end_capture(|| unsafe { real(stream, graph) })
    };
}
