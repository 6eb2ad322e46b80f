//! What the driver's error numbers mean, as a table.
//!
//! Names and remedies are those of NVIDIA's catalogue of Xid errors
//! (<https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html>): what it answers with `RESTART_APP` and
//! lays to the program is the application's own, what it answers with `RESET_GPU`, `RESTART_BM` or a repair is an
//! illness of the GPU. What it lets run on until a reset is convenient retires: it takes no new work.

use super::HealthVerdict::{self, Application, Quarantine, Retire, Tell};

/// What is known of an Xid.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Xid {
    /// Its number.
    pub number: u64,
    /// What follows.
    pub verdict: HealthVerdict,
    /// What it means, in the catalogue's words.
    pub meaning: &'static str,
}

const fn xid(number: u64, verdict: HealthVerdict, meaning: &'static str) -> Xid {
    Xid { number, verdict, meaning }
}

/// All that are known, ascending. What is not in it is told and changes nothing.
pub const XIDS: &[Xid] = &[
    xid(8, Application, "GPU stopped processing"),
    xid(13, Application, "graphics engine exception"),
    xid(31, Application, "GPU memory page fault"),
    xid(32, Application, "invalid or corrupted push buffer stream"),
    xid(43, Application, "GPU stopped processing"),
    xid(44, Application, "graphics engine fault during context switch"),
    xid(45, Application, "preemptive cleanup, due to earlier errors"),
    xid(46, Quarantine, "GPU stopped processing, a reset is needed"),
    xid(48, Quarantine, "double-bit ECC error"),
    xid(61, Quarantine, "internal micro-controller breakpoint"),
    xid(62, Quarantine, "internal micro-controller halt"),
    xid(63, Retire, "a memory row is to be remapped at the next reset"),
    xid(64, Quarantine, "a memory row could not be remapped"),
    xid(68, Application, "video decoder exception"),
    xid(69, Application, "graphics engine class error"),
    xid(74, Quarantine, "NVLink error"),
    xid(79, Quarantine, "GPU has fallen off the bus"),
    xid(92, Retire, "high rate of single-bit ECC errors"),
    xid(93, Tell, "InfoROM wear limit reached"),
    xid(94, Quarantine, "contained memory error"),
    xid(95, Quarantine, "uncontained memory error"),
    xid(109, Application, "context switch timeout"),
    xid(110, Quarantine, "security fault"),
    xid(119, Quarantine, "GSP RPC timeout"),
    xid(120, Quarantine, "GSP error"),
    xid(121, Tell, "corrected C2C link error"),
    xid(140, Quarantine, "unrecovered ECC error"),
    xid(143, Quarantine, "GPU initialization error"),
    xid(154, Tell, "the driver's advice on recovery changed"),
];

/// What is known of a number.
pub fn known(number: u64) -> Xid {
    let found = XIDS.binary_search_by_key(&number, |xid| xid.number);
    found.map_or(Xid { number, verdict: Tell, meaning: "not in the table" }, |index| XIDS[index])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_in_order_and_says_who_is_to_blame() {
        assert!(XIDS.windows(2).all(|pair| pair[0].number < pair[1].number));
        for number in [13, 31, 43, 45, 68] {
            assert_eq!(known(number).verdict, Application, "Xid {number}");
        }
        for number in [48, 64, 74, 79, 94, 95, 119, 120] {
            assert_eq!(known(number).verdict, Quarantine, "Xid {number}");
        }
        for number in [63, 92] {
            assert_eq!(known(number).verdict, Retire, "Xid {number}");
        }
        assert_eq!(known(9999).verdict, Tell);
    }
}
