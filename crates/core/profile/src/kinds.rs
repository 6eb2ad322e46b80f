//! What is generally known about types of GPU: a stand-in where a user says nothing.
//!
//! Speeds are coarse ratios of training throughput to one V100, rounded from public benchmarks and from the
//! tables in the zoo; they serve only models that were never measured on a type.
//! Prices are defaults in dollars for one GPU and hour, rounded from public on-demand prices of large clouds.
//! A cluster file overrides memory, price and power.

/// General facts about one type of GPU.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct KindFacts {
    /// Its name in lower case.
    pub name: &'static str,
    /// Training speed relative to a V100.
    pub speed: f64,
    /// Memory.
    pub memory_gib: u32,
    /// A usual price for an hour, in dollars.
    pub price_per_hour: f64,
    /// Board power.
    pub watts: u32,
}

macro_rules! kinds {
    ($($name:literal $speed:literal $memory:literal $price:literal $watts:literal;)*) => {
        [$(KindFacts {
            name: $name, speed: $speed, memory_gib: $memory, price_per_hour: $price, watts: $watts,
        }),*]
    };
}

/// Every known type, older ones first.
pub const KINDS: [KindFacts; 32] = kinds! {
    // name        speed GiB  $/h  watts
    "cpu"          0.02  0    0.05 0;
    "k80"          0.15  12   0.45 150;
    "m60"          0.20  8    0.65 150;
    "p4"           0.25  8    0.60 75;
    "p40"          0.50  24   0.80 250;
    "p100"         0.60  16   1.46 250;
    "v100"         1.00  16   2.48 300;
    "t4"           0.40  16   0.35 70;
    "titanv"       0.90  12   1.00 250;
    "rtx2080ti"    0.65  11   0.50 250;
    "rtx3080"      0.90  10   0.45 320;
    "rtx3090"      1.10  24   0.60 350;
    "rtx4090"      1.80  24   0.90 450;
    "rtx5090"      2.50  32   1.20 575;
    "rtx6000"      0.90  24   1.20 295;
    "a10"          0.80  24   1.00 150;
    "a16"          0.30  16   0.50 62;
    "a30"          1.20  24   1.40 165;
    "a40"          1.20  48   1.30 300;
    "a6000"        1.20  48   1.20 300;
    "a100"         2.20  40   2.90 400;
    "a800"         2.10  80   3.00 400;
    "l4"           0.70  24   0.70 72;
    "l40"          1.50  48   1.50 300;
    "l40s"         1.90  48   1.90 350;
    "h20"          2.00  96   3.00 400;
    "h100"         4.50  80   3.90 700;
    "h800"         4.20  80   3.90 700;
    "h200"         5.00  141  4.80 700;
    "b200"         9.00  180  8.00 1000;
    "mi250"        2.20  64   2.50 280;
    "mi300x"       4.50  192  4.50 750;
};

/// What is known about a type: the entry of that name, or of the part before the first mark (`a100-80gb`).
pub fn facts(name: &str) -> Option<&'static KindFacts> {
    let name = name.trim().to_lowercase();
    let whole: String = name.chars().filter(|c| c.is_ascii_alphanumeric()).collect();
    let first = name.split(|c: char| !c.is_ascii_alphanumeric()).next().unwrap_or("");
    let find = |wanted: &str| KINDS.iter().find(|kind| kind.name == wanted);
    find(&whole).or_else(|| find(first))
}

/// Training speed of a type relative to a V100; 1 for a type that is not known.
pub fn speed(name: &str) -> f64 {
    facts(name).map_or(1.0, |kind| kind.speed)
}

/// Bytes in a second between a GPU of a type and the memory of its host, copied from pinned memory.
///
/// An H200 was measured: 12.6 GB in 0.24 s. Others by the generation of PCIe that they are on, at four fifths of what
/// sixteen lanes could carry; a type that is not known counts as the third.
pub fn host_bytes_per_second(name: &str) -> f64 {
    match facts(name).map_or("", |kind| kind.name) {
        "h20" | "h100" | "h800" | "h200" | "b200" | "rtx5090" | "mi300x" => 52e9,
        "rtx3080" | "rtx3090" | "rtx4090" | "a10" | "a16" | "a30" | "a40" | "a6000" | "a100"
        | "a800" | "l4" | "l40" | "l40s" | "mi250" => 25e9,
        _ => 12.5e9,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variant_is_known_by_its_family() {
        assert_eq!(facts("A100-80GB").unwrap().name, "a100");
        assert_eq!(facts("rtx-2080-ti").unwrap().name, "rtx2080ti");
        assert_eq!(facts("l40s").unwrap().name, "l40s");
        assert_eq!(facts("tpu-v4"), None);
        assert_eq!(speed("tpu-v4"), 1.0);
    }

    #[test]
    fn no_name_is_listed_twice() {
        for (index, kind) in KINDS.iter().enumerate() {
            assert!(KINDS[..index].iter().all(|other| other.name != kind.name), "{}", kind.name);
            assert!(kind.speed > 0.0 && kind.price_per_hour > 0.0);
        }
    }
}
