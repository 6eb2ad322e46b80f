//! Malformed job files: the line, the field, the value, what was expected and the nearest name.

use crate::fault;
use trainyard_jobfile::Form;

fn refused(form: Form, text: &str, line: u64, parts: &[&str]) {
    let fault = fault(form, text);
    let message = fault.to_string();
    assert_eq!(fault.line, line, "{message}\n{text}");
    for part in parts {
        assert!(message.contains(part), "`{part}` is not in: {message}\n{text}");
    }
    assert!(!message.contains('\n'), "{message}");
}

#[test]
fn broken_notation_is_refused_with_its_line() {
    refused(Form::Toml, "gpus = 1\ncommand = [\"a\"\n", 2, &["TOML"]);
    refused(Form::Toml, "gpus = 1\ngpus = 2\n", 2, &["TOML", "gpus"]);
    refused(Form::Yaml, "gpus: 1\ncommand: [a\n", 2, &["YAML"]);
    refused(Form::Yaml, "gpus: 1\ngpus: 2\n", 2, &["YAML", "gpus"]);
    refused(Form::Yaml, "a: 1\n---\nb: 2\n", 3, &["YAML", "one document"]);
    refused(Form::Json, "{\"gpus\": 1,\n \"command\": [\"a\"\n", 3, &["JSON"]);
    refused(Form::Json, "{\"gpus\": 1,\n\"gpus\": 2}", 2, &["`gpus`", "once"]);
    refused(Form::Json, "", 1, &["JSON"]);
    refused(Form::Yaml, "", 1, &["a table of keys"]);
    refused(Form::Toml, "", 1, &["`command` is missing"]);
    let deep = format!("env = {}1{}", "[".repeat(60), "]".repeat(60));
    refused(Form::Toml, &deep, 1, &["deep"]);
    let deep = format!("{{\"env\":\n{}1{}}}", "[".repeat(100), "]".repeat(100));
    refused(Form::Json, &deep, 2, &["deep"]);
}

#[test]
fn a_shell_string_is_refused_with_the_list_it_should_become() {
    let list = r#"["python","train.py","--lr","1"]"#;
    let string = "python train.py --lr 1";
    refused(Form::Toml, &format!("\ncommand = \"{string}\""), 2, &["`command`", string, list]);
    refused(Form::Yaml, &format!("command: {string}"), 1, &["no shell", list]);
    refused(Form::Json, &format!("{{\"argv\": \"{string}\"}}"), 1, &["`argv`", list]);
    refused(Form::Toml, "command = []", 1, &["a list such as"]);
    refused(Form::Toml, "command = [\"\"]", 1, &["a text"]);
    refused(Form::Toml, "command = [\"a\", true]", 1, &["`command`", "true"]);
    refused(Form::Toml, "command = [\"a\\u0000\"]", 1, &["NUL"]);
}

#[test]
fn wrong_keys_name_the_nearest() {
    for (key, nearest) in [
        ("comand", "command"),
        ("gpu", "gpus"),
        ("time-limit", "time_limit"),
        ("dealine", "deadline"),
        ("memory_per_gpus", "memory_per_gpu"),
    ] {
        let text = format!("command = [\"a\"]\n{key} = 1\n");
        refused(
            Form::Toml,
            &text,
            2,
            &[&format!("`{key}`"), &format!("did you mean `{nearest}`?")],
        );
    }
    let text = "command: [a]\ncheckpoint:\n  signal: TERM\n  garce: 3s\n";
    refused(Form::Yaml, text, 4, &["`checkpoint`", "`garce`", "did you mean `grace`?"]);
    let text = "[[job]]\ncommand = [\"a\"]\n[[job]]\ncommand = [\"a\"]\n[default]\ngpus = 1\n";
    refused(Form::Toml, text, 5, &["`default`", "did you mean `defaults`?"]);
}

#[test]
fn wrong_values_name_what_was_expected() {
    for (line, parts) in [
        ("gpus = 0", &["`gpus` cannot be `0`", "a whole number from 1 to 1000000"][..]),
        ("gpus = \"4\"", &["`gpus`", "a whole number"]),
        ("gpus = 99999999999999999999", &["`gpus`", "a whole number"]),
        ("gpus = 1.5", &["`gpus` cannot be `1.5`"]),
        ("weight = nan", &["`weight`", "a number from"]),
        ("time_limit = \"2 fortnights\"", &["`time_limit`", "2 fortnights", "1h30m"]),
        ("time_limit = -5", &["`time_limit` cannot be `-5`"]),
        ("memory = 16", &["`memory` cannot be `16`", "16GiB"]),
        ("gpu_memory = \"16 gigs\"", &["`gpu_memory`", "16 gigs"]),
        ("gpu_share = 1.5", &["`gpu_share`", "0.5"]),
        ("begin = \"someday\"", &["`begin` cannot be `someday`", "now+2h"]),
        ("deadline = \"2020-01-01\"", &["`deadline` cannot be `2020-01-01`", "to come"]),
        ("after = [\"a\"]", &["`after`", "[12, 13]"]),
        ("after = [-1]", &["`after`"]),
        ("array = \"0-\"", &["`array`", "`0-`", "0-9"]),
        ("processes = \"per-gpus\"", &["`processes`", "did you mean `per-gpu`?"]),
        ("checkpoint = { signal = \"KILL\" }", &["`signal` cannot be `KILL`", "`USR1`"]),
        ("checkpoint = 3", &["`checkpoint` cannot be `3`", "a table with keys signal"]),
        ("env = { \"A-B\" = \"x\" }", &["`env`", "`A-B`", "name of a variable"]),
        ("env = { A = [1] }", &["`env.A`", "a text"]),
        ("env = \"A=1\"", &["`env`", "a table"]),
        ("preemptible = \"yes\"", &["`preemptible`", "`true` or `false`"]),
        ("name = \" \"", &["`name`", "a text"]),
        ("script = \"echo\"", &["`script`", "#!/bin/bash"]),
        ("schema_version = 2", &["`schema_version` cannot be `2`", "1"]),
        ("gpus_min = 2", &["`gpus_min` cannot be `2`", "at most `gpus`"]),
        ("gpus_max = 0", &["`gpus_max`"]),
        ("batch_max = 64", &["`batch_max` cannot be `64`", "`batch` beside it"]),
        ("batch = 0", &["`batch` cannot be `0`"]),
    ] {
        refused(Form::Toml, &format!("command = [\"a\"]\n\n{line}\n"), 3, parts);
    }
}

#[test]
fn keys_that_contradict_each_other_are_refused() {
    let text = "command = [\"a\"]\ntime_limit = \"2h\"\ntime_limit_seconds = 3\n";
    refused(Form::Toml, text, 3, &["`time_limit_seconds`", "once"]);
    let text = "command = [\"a\"]\nmemory = \"2GiB\"\nmemory_per_gpu = \"2GiB\"\n";
    refused(Form::Toml, text, 2, &["`memory`", "`memory_per_gpu`"]);
    let text = "command = [\"a\"]\nbatch = 64\nbatch_max = 32\n";
    refused(Form::Toml, text, 3, &["`batch_max` cannot be `32`", "at least `batch`, which is 64"]);
    let text = "command = [\"a\"]\nbatch = 64\nbatch_max = 256\ngpus = 8\nbatch_per_gpu_min = 64\n";
    refused(Form::Toml, text, 5, &["`batch_per_gpu_min` cannot be `64`", "8 GPUs", "256"]);
    let text = "command = [\"a\"]\ngpus = 2\ngpu_share = 0.5\n";
    refused(Form::Toml, text, 3, &["`gpu_share`", "one GPU"]);
    let text = "command = [\"a\"]\nshare = 0.5\nshare_limit = 0.4\n";
    refused(Form::Toml, text, 3, &["`share_limit`", "at least its share"]);
    let text = "command = [\"a\"]\nshare_limit = 0.4\n";
    refused(Form::Toml, text, 2, &["`share_limit`", "a share below the whole GPU"]);
    let text = "gpus = 2\n[[job]]\ncommand = [\"a\"]\n";
    refused(Form::Toml, text, 1, &["`gpus`", "`defaults`"]);
    refused(Form::Toml, "[defaults]\ngpus = 2\n", 1, &["`defaults`", "[[job]]"]);
    refused(Form::Toml, "job = 3\n", 1, &["`job`", "a list of jobs"]);
    refused(Form::Yaml, "jobs: []\n", 0, &["`jobs`", "from 1"]);
    refused(Form::Yaml, "jobs:\n- 3\n", 2, &["`job`", "a table"]);
}

#[test]
fn a_text_that_is_too_large_is_refused() {
    let fault = fault(Form::Toml, &"# \n".repeat(2 << 20));
    assert!(fault.to_string().contains("at most 4 MiB"), "{fault}");
}
