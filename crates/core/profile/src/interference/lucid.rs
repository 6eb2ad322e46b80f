//! Lucid's measurements on an RTX 3090 (ASPLOS 2023), read from files that users fetch themselves.
//!
//! Its licence allows no commercial use, so that nothing of them is part of this project.
//! Two CSV files of its artefact's simulator are asked for: one with a row for each configuration alone (`model`,
//! `dataset`, `batchsize`, `amp`, `gpu_util`, `gmem_util`, `gmem`) and one with a row for each pair (the same four for both
//! jobs, with `speed1` and `speed2` relative to their speed alone).

use super::{Alone, Machine, Met};
use crate::features::{Feature, Features};
use crate::import::table::{self, Table};
use csv::StringRecord;
use std::collections::BTreeMap;
use trainyard_diagnostic::InputError;

/// What came of the two files.
#[derive(Clone, Debug, PartialEq)]
pub struct LucidPairs {
    /// Pairs, each seen from both sides.
    pub met: Vec<Met>,
    /// Rows of a configuration that the first file does not tell of.
    pub unknown: usize,
}

/// A configuration: network, data, batch, and whether it is in mixed precision.
type Configuration = (String, String, String, String);

/// Why a file cannot be read, and which of the two.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LucidError {
    /// The file of configurations alone.
    #[error("configurations alone: {0}")]
    Alone(InputError),
    /// The file of pairs.
    #[error("pairs: {0}")]
    Pairs(InputError),
}

/// Reads both files.
pub fn read(alone: &str, pairs: &str) -> Result<LucidPairs, LucidError> {
    let alone = read_alone(alone).map_err(LucidError::Alone)?;
    read_pairs(pairs, &alone).map_err(LucidError::Pairs)
}

fn read_alone(text: &str) -> Result<BTreeMap<Configuration, Alone>, InputError> {
    let table = table::read(text)?;
    let configuration = columns(&table, ["model", "dataset", "batchsize", "amp"])?;
    let [busy, memory_busy, memory] = columns(&table, ["gpu_util", "gmem_util", "gmem"])?;
    let mut found = BTreeMap::new();
    for (line, row) in &table.rows {
        let key = named(row, configuration);
        let value = |place: usize, most: f64| number((&table, *line), row, place, most);
        let mut features = Features::default()
            .with(Feature::Utilisation, value(busy, 100.0)? / 100.0)
            .with(Feature::MemoryUtilisation, value(memory_busy, 100.0)? / 100.0)
            .with(Feature::MemoryMib, value(memory, 1e7)?);
        features.set(Feature::Batch, value(configuration[2], 1e9)?);
        features.set(Feature::HalfPrecision, value(configuration[3], 1.0)?);
        let alone = Alone { architecture: key.0.clone(), features };
        if found.insert(key, alone).is_some() {
            let text = row.get(configuration[0]).unwrap_or("");
            return Err(InputError::wrong(*line, "model", text, "one row for each configuration"));
        }
    }
    Ok(found)
}

fn read_pairs(
    text: &str,
    alone: &BTreeMap<Configuration, Alone>,
) -> Result<LucidPairs, InputError> {
    let table = table::read(text)?;
    let first = columns(&table, ["model1", "dataset1", "batchsize1", "amp1"])?;
    let second = columns(&table, ["model2", "dataset2", "batchsize2", "amp2"])?;
    let [speed1, speed2] = columns(&table, ["speed1", "speed2"])?;
    let on = Machine::of("rtx3090");
    let mut read = LucidPairs { met: Vec::new(), unknown: 0 };
    for (line, row) in &table.rows {
        let kept = [speed1, speed2].map(|place| number((&table, *line), row, place, 10.0));
        let [kept1, kept2] = kept;
        let (kept1, kept2) = (kept1?, kept2?);
        let (Some(one), Some(two)) =
            (alone.get(&named(row, first)), alone.get(&named(row, second)))
        else {
            read.unknown += 1;
            continue;
        };
        for (own, other, kept) in [(one, two, kept1), (two, one, kept2)] {
            if kept > 0.0 {
                read.met.push(Met { own: own.clone(), others: vec![other.clone()], on, kept });
            }
        }
    }
    Ok(read)
}

fn columns<const N: usize>(table: &Table, names: [&str; N]) -> Result<[usize; N], InputError> {
    let mut places = [0; N];
    for (place, name) in places.iter_mut().zip(names) {
        *place = table.column(name)?;
    }
    Ok(places)
}

fn named(row: &StringRecord, places: [usize; 4]) -> Configuration {
    let [model, data, batch, amp] = places.map(|place| row.get(place).unwrap_or("").to_owned());
    (model, data, batch, amp)
}

fn number(
    (table, line): (&Table, u64),
    row: &StringRecord,
    place: usize,
    most: f64,
) -> Result<f64, InputError> {
    let text = row.get(place).unwrap_or("");
    let found: Option<f64> = text.parse().ok().filter(|value| (0.0..=most).contains(value));
    let expected = format!("a number from 0 to {most}");
    found.ok_or_else(|| InputError::wrong(line, &table.heading[place], text, expected))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALONE: &str = "model,dataset,batchsize,amp,speed,gpu_util,gmem_util,gmem,label\n\
        A,x,32,0,10.5,40,20,2000,0\nB,y,64,1,11,90,60,4000,2\n";

    #[test]
    fn a_pair_is_seen_from_both_sides_with_what_is_known_of_each() {
        let pairs = ",model1,dataset1,gpu_num1,batchsize1,amp1,speed1,model2,dataset2,gpu_num2,batchsize2,amp2,speed2\n\
            0,A,x,1,32,0,0.9,B,y,1,64,1,0.6\n1,A,x,1,32,0,0.8,C,y,1,64,1,0.7\n";
        let read = read(ALONE, pairs).unwrap();
        assert_eq!((read.met.len(), read.unknown), (2, 1));
        let [first, second] = &read.met[..] else { panic!("two sides") };
        assert_eq!((first.own.architecture.as_str(), first.kept), ("A", 0.9));
        assert_eq!((second.own.architecture.as_str(), second.kept), ("B", 0.6));
        assert_eq!(second.own.features.get(Feature::Utilisation), Some(0.9));
        assert_eq!(second.others[0].features.get(Feature::MemoryMib), Some(2000.0));
    }

    #[test]
    fn a_fault_names_file_line_and_column() {
        let pairs = "model1,dataset1,batchsize1,amp1,speed1,model2,dataset2,batchsize2,amp2,speed2\n\
            A,x,32,0,fast,B,y,64,1,0.6\n";
        let error = read(ALONE, pairs).unwrap_err();
        assert!(matches!(&error, LucidError::Pairs(inner) if inner.line == 2), "{error:?}");
        let text = error.to_string();
        assert!(text.contains("speed1") && text.contains("fast"), "{text}");
        let error = read("model,dataset,batchsize,amp,gpu_utl\n", "").unwrap_err();
        assert!(matches!(error, LucidError::Alone(_)), "{error:?}");
    }
}
