//! Whatever the text, the answer is jobs or a message, never a panic.

use crate::read;
use proptest::prelude::{Just, ProptestConfig, Strategy, any, prop_oneof};
use proptest::test_runner::RngSeed;
use proptest::{collection, proptest};
use trainyard_jobfile::Form;

const FORMS: [Form; 4] = [Form::Toml, Form::Yaml, Form::Json, Form::Batch];

/// Texts made of parts that job files are made of, so that readers come far.
fn parts() -> impl Strategy<Value = String> {
    let words = [
        "command",
        "gpus",
        "env",
        "checkpoint",
        "begin",
        "after",
        "array",
        "jobs",
        "job",
        "defaults",
        "[[job]]",
        "[",
        "]",
        "{",
        "}",
        ":",
        "=",
        "\"",
        "'",
        "\n",
        " ",
        "  ",
        "- ",
        ",",
        "#",
        "|",
        "&a",
        "*a",
        "<<",
        "0",
        "-1",
        "1e400",
        "9223372036854775808",
        "nan",
        "0x",
        "2h",
        "now+",
        "now+9999999d",
        "16GiB",
        "2026-05-01T12:00",
        "0-9%4",
        "#SBATCH ",
        "--gpus",
        "-N",
        "--mem",
        "--time",
        "--signal",
        "--begin",
        "--array",
        "true",
        "null",
        "~",
        "é",
        "\u{0}",
        "\t",
        "\r\n",
        "---\n",
        "a100:",
    ];
    let part = prop_oneof![
        8 => proptest::sample::select(words.to_vec()).prop_map(str::to_owned),
        1 => any::<char>().prop_map(String::from),
    ];
    collection::vec(part, 0..40).prop_map(|parts| parts.concat())
}

fn begin() -> impl Strategy<Value = &'static str> {
    let begins =
        ["", "#!/bin/bash\n", "command = [\"a\"]\n", "command: [a]\n", "{\"command\": [\"a\"],"];
    proptest::sample::select(begins.to_vec())
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 4000,
        rng_seed: RngSeed::Fixed(5),
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn any_text_is_answered(text in any::<String>()) {
        for form in FORMS {
            let _ = read(form, &text);
        }
    }

    #[test]
    fn any_text_of_likely_parts_is_answered(begin in begin(), parts in parts(), last in Just("\n")) {
        let text = format!("{begin}{parts}{last}");
        for form in FORMS {
            if let Err(fault) = read(form, &text) {
                // To YAML a carriage return alone ends a line too.
                let lines = text.matches(['\n', '\r']).count() as u64 + 1;
                assert!(fault.line <= lines, "{fault} in {text:?}");
                assert!(!fault.to_string().contains('\n'), "{fault}");
            }
            let _ = Form::of("job", &text);
        }
    }

    #[test]
    fn any_array_and_moment_is_answered(text in "[-0-9:%,T+nowd. Z]{0,24}") {
        if let Ok(array) = trainyard_api::parse_array(&text) {
            assert!(!array.indices.is_empty() && array.indices.is_sorted());
        }
        let _ = trainyard_jobfile::moment(&text, &crate::context());
    }
}
