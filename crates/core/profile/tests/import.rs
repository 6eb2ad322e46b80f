//! Published tables: text in, profiles out.

use proptest::prelude::*;
use trainyard_diagnostic::InputError;
use trainyard_profile::ModelProfile;
use trainyard_profile::import::{chronus, elasticflow, gavel, muri, synergy};
use trainyard_profile::profile_file;

fn every(text: &str) -> [Result<Vec<ModelProfile>, InputError>; 5] {
    [
        gavel::read(text),
        elasticflow::read(text, "bert", "a100"),
        muri::read(text),
        chronus::read(text),
        synergy::read(text),
    ]
}

/// What was read can be written and read back.
fn holds(text: &str) {
    for models in every(text).into_iter().flatten() {
        assert!(!models.is_empty());
        let again = profile_file::read(&profile_file::write(&models));
        assert_eq!(again, Ok(models));
    }
}

const GAVEL: &str =
    r#"{"v100": {"('LM (batch size 5)', 1)": {"null": 3.5, "('LM (batch size 5)', 1)": [2, 2]}}}"#;
const ELASTICFLOW: &str = "global_batch_size,1,2\n64,3.5,7\n128,nan,4\n";
const MURI: &str = "model,batch_size,num_gpu,iteration_ms,stage0_ms,stage1_ms,stage2_ms\n\
    vgg16,16,1,107,117,68,0\nbert,4,32,260,0.5,166,133\n";
const SYNERGY: &str = r#"{"cpu_rows": [1, 3], "mem_cols_gb": [20.83, 62.5], "models": {
    "res18_1": {"iter_time": 0.64, "batch": 512, "tput": [[0.1, 0.3], [0.1, 1]]}}}"#;
const CHRONUS: &str = r#"{"vgg16": {"8": {"1": 1.0, "2": 0.57}}}"#;

#[test]
fn each_table_is_read_by_its_own_reader_only() {
    for (index, text) in [GAVEL, ELASTICFLOW, MURI, CHRONUS, SYNERGY].into_iter().enumerate() {
        for (reader, read) in every(text).into_iter().enumerate() {
            assert_eq!(read.is_ok(), reader == index, "{text} by reader {reader}: {read:?}");
        }
        holds(text);
    }
}

proptest! {
    #[test]
    fn arbitrary_bytes_are_refused_and_never_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        holds(&String::from_utf8_lossy(&bytes));
    }

    #[test]
    fn a_damaged_table_is_refused_or_holds(
        which in 0..5usize,
        at in 0..200usize,
        put in "[-0-9a-z.,:{}\"()'\n]{0,3}",
        cut in 0..4usize,
    ) {
        let text = [GAVEL, ELASTICFLOW, MURI, CHRONUS, SYNERGY][which];
        let at = at.min(text.len());
        let end = (at + cut).min(text.len());
        holds(&format!("{}{put}{}", &text[..at], &text[end..]));
    }
}

/// The authors' own files, where they are at hand.
#[test]
fn published_tables_of_hosts_and_stages_are_read_whole() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../../shared/data");
    let text = |path: &str| {
        let packed = std::fs::read(format!("{root}/{path}")).ok()?;
        let mut text = String::new();
        std::io::Read::read_to_string(&mut flate2::read::GzDecoder::new(&packed[..]), &mut text)
            .ok()?;
        Some(text)
    };
    let (Some(matrices), Some(stages)) = (
        text("synergy/model_sensitivity_profiles.json.gz"),
        text("muri/model_resource_profile.csv.gz"),
    ) else {
        trainyard_testkit::skip!("data", "no published tables beside the repository");
        return;
    };
    let models = synergy::read(&matrices).expect("Synergy");
    assert_eq!(models.iter().map(|model| model.host.len()).sum::<usize>(), 33);
    let alexnet = models.iter().find(|model| model.name == "synergy-alexnet-b512").unwrap();
    // Figures of the paper: 12 CPUs and 125 GB make AlexNet 2.94 times as fast, and 1 CPU leaves 0.3.
    assert_eq!(alexnet.host[0].part(12.0, 128_000.0), 2.94);
    assert_eq!(alexnet.host[0].part(1.0, 0.0), 0.3);
    let models = muri::read(&stages).expect("Muri");
    assert_eq!(models.iter().map(|model| model.stages.len()).sum::<usize>(), 48);
}
