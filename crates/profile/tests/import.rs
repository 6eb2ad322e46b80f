//! Published tables: text in, profiles out.

use proptest::prelude::*;
use trainyard_profile::import::{chronus, elasticflow, gavel, muri};
use trainyard_profile::profile_file;
use trainyard_profile::{InputError, ModelProfile};

fn every(text: &str) -> [Result<Vec<ModelProfile>, InputError>; 4] {
    [
        gavel::read(text),
        elasticflow::read(text, "bert", "a100"),
        muri::read(text),
        chronus::read(text),
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
const MURI: &str = "model,batch_size,num_gpu,iteration_ms\nvgg16,16,1,107\nbert,4,32,260\n";
const CHRONUS: &str = r#"{"vgg16": {"8": {"1": 1.0, "2": 0.57}}}"#;

#[test]
fn each_table_is_read_by_its_own_reader_only() {
    for (index, text) in [GAVEL, ELASTICFLOW, MURI, CHRONUS].into_iter().enumerate() {
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
        which in 0..4usize,
        at in 0..200usize,
        put in "[-0-9a-z.,:{}\"()'\n]{0,3}",
        cut in 0..4usize,
    ) {
        let text = [GAVEL, ELASTICFLOW, MURI, CHRONUS][which];
        let at = at.min(text.len());
        let end = (at + cut).min(text.len());
        holds(&format!("{}{put}{}", &text[..at], &text[end..]));
    }
}
