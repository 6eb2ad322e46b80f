//! The examples of the guide are understood.

use crate::read;
use std::path::Path;
use trainyard_jobfile::Form;

fn blocks(page: &str, language: &str) -> Vec<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/guide").join(page);
    let text = std::fs::read_to_string(path).expect("a page");
    let begin = format!("```{language}\n");
    let parts = text.split(&begin).skip(1);
    parts.map(|part| part.split("```").next().unwrap_or_default().to_owned()).collect()
}

#[test]
fn every_example_of_a_job_file_is_a_job_file() {
    let mut count = 0;
    for (language, form) in [("toml", Form::Toml), ("yaml", Form::Yaml)] {
        for text in blocks("job-files.md", language) {
            read(form, &text).unwrap_or_else(|fault| panic!("{fault}\n{text}"));
            count += 1;
        }
    }
    assert!(count >= 4, "{count} examples");
}

#[test]
fn the_example_of_a_batch_script_is_understood_without_a_remark() {
    let scripts = blocks("batch-scripts.md", "sh");
    let script = scripts.iter().find(|text| text.starts_with("#!")).expect("a script");
    let file = read(Form::Batch, script).unwrap_or_else(|fault| panic!("{fault}"));
    assert_eq!((file.jobs[0].gpus, file.remarks.as_slice()), (4, &[][..]));
}

#[test]
fn every_key_of_a_job_is_in_the_guide() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/guide/job-files.md");
    let page = std::fs::read_to_string(path).expect("a page");
    let schema = trainyard_jobfile::schema();
    for key in schema["$defs"]["job"]["properties"].as_object().expect("keys").keys() {
        assert!(page.contains(&format!("`{key}`")), "docs/guide/job-files.md does not say `{key}`");
    }
}
