//! Every reader of foreign bytes on its seeds and on changes of them: what `fuzz/run` does at length, in seconds.

use trainyard_testkit::dice::Dice;
use trainyard_testkit::places::root;

#[path = "../../../../fuzz/src/lib.rs"]
mod readers;

/// A reader that panics when a promise is broken.
type Reader = fn(&[u8]);

const READERS: [(&str, &str, Reader); 10] = [
    ("trace", "trace", readers::trace),
    ("trace_as", "trace", readers::trace_as),
    ("own_trace", "own_trace", readers::own_trace),
    ("cluster", "cluster", readers::cluster),
    ("scenario", "scenario", readers::scenario),
    ("profile", "profile", readers::profile),
    ("profile_import", "profile_import", readers::profile_import),
    ("unpack", "unpack", readers::unpack),
    ("spec", "spec", readers::spec),
    ("slurm", "slurm", readers::slurm),
];
/// Changes of each seed.
const CHANGES: u64 = 1000;
const BYTES_MAX: usize = 4096;

#[test]
fn no_reader_breaks_a_promise_on_its_seeds_or_near_them() {
    let mut tried = 0;
    for (purpose, (name, folder, read)) in READERS.into_iter().enumerate() {
        let mut dice = Dice::new(1, purpose as u64);
        for (file, seed) in seeds(folder) {
            read(&seed);
            let mut bytes: Vec<u8> = seed.iter().copied().take(BYTES_MAX).collect();
            for change in 0..CHANGES {
                if change % 10 == 0 {
                    bytes = seed.iter().copied().take(BYTES_MAX).collect();
                }
                mutate(&mut bytes, &mut dice);
                let whole = std::panic::catch_unwind(|| read(&bytes)).is_ok();
                assert!(whole, "{name}: change {change} of {file}: {}", bytes.escape_ascii());
                tried += 1;
            }
        }
    }
    assert!(tried > 5_000, "only {tried} inputs");
}

fn seeds(folder: &str) -> Vec<(String, Vec<u8>)> {
    let folder = root().join("fuzz/seeds").join(folder);
    let files = std::fs::read_dir(&folder).expect("seeds are part of the repository");
    let mut files: Vec<_> = files.flatten().map(|entry| entry.path()).collect();
    files.sort();
    let named = |path: std::path::PathBuf| {
        let text = std::fs::read(&path).expect("a seed is readable");
        (path.display().to_string(), text)
    };
    files.into_iter().map(named).collect()
}

/// One change of the kind that finds faults: a byte, a number, a piece less, a piece twice.
fn mutate(bytes: &mut Vec<u8>, dice: &mut Dice) {
    const ODD: [&[u8]; 8] =
        [b"-1", b"0", b"1e308", b"18446744073709551616", b"\"", b"\n", b"\xff\xfe", b"nan"];
    if bytes.is_empty() {
        bytes.push(b'x');
    }
    let at = dice.below(bytes.len() as u64) as usize;
    let end = (at + 1 + dice.below(24) as usize).min(bytes.len());
    match dice.below(5) {
        0 => bytes[at] ^= 1 << dice.below(8),
        1 => drop(bytes.drain(at..end)),
        2 => {
            let piece = bytes[at..end].to_vec();
            let to = dice.below(bytes.len() as u64) as usize;
            bytes.splice(to..to, piece);
        }
        3 => drop(bytes.splice(at..end, dice.pick(&ODD).iter().copied())),
        _ => {
            let digit = bytes.iter().skip(at).position(u8::is_ascii_digit).map(|found| at + found);
            let digit = digit.unwrap_or(at);
            drop(bytes.splice(digit..=digit, dice.pick(&ODD).iter().copied()));
        }
    }
}
