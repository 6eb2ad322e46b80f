//! The lines of a scenario about hosts: `host cpus 24 memory 512000` and `sensitive NAME key=value ...`.

use crate::scenario::Line;
use trainyard_diagnostic::InputError;
use trainyard_profile::{HostTable, ModelProfile};
use trainyard_types::Cluster;

const KEYS: [&str; 4] = ["cpus", "memory", "usual", "parts"];

/// Gives every node of the cluster the CPUs and the memory that a line states.
pub(crate) fn read_nodes(line: &Line<'_>, cluster: &mut Cluster) -> Result<(), InputError> {
    let words: Vec<&str> = line.rest.split_whitespace().collect();
    let wrong = || line.wrong("CPUs and MiB of every node, such as `cpus 24 memory 512000`");
    let ["cpus", cpus, "memory", memory_mib] = words[..] else { return Err(wrong()) };
    let cpus: u16 = cpus.parse().map_err(|_| wrong())?;
    let memory_mib: u32 = memory_mib.parse().map_err(|_| wrong())?;
    for node in &mut cluster.nodes {
        (node.cpus, node.memory_mib) = (cpus, memory_mib);
    }
    Ok(())
}

/// A model that does one step each second with its usual part of the host, and another part of that with others.
pub(crate) fn read_model(line: &Line<'_>) -> Result<ModelProfile, InputError> {
    let mut words = line.rest.split_whitespace();
    let name = words.next().ok_or_else(|| line.wrong("a name and `key=value` pairs"))?;
    let mut table = HostTable {
        gpus: 1,
        cpus: Vec::new(),
        memory_mib: Vec::new(),
        parts: Vec::new(),
        usual: (1.0, 1),
    };
    for word in words {
        let (key, value) = word.split_once('=').unwrap_or((word, ""));
        set(&mut table, line.number, key, value)?;
    }
    if let Some(expected) = table.fault() {
        return Err(line.wrong(expected));
    }
    let source = "a line of a scenario";
    Ok(ModelProfile { host: vec![table], ..ModelProfile::steady(name, source, 1.0) })
}

fn set(table: &mut HostTable, line: u64, key: &str, value: &str) -> Result<(), InputError> {
    let wrong = |expected: &str| InputError::wrong(line, key, value, expected);
    let number = |text: &str| text.parse().ok().filter(|x: &f64| *x > 0.0 && *x < 1e9);
    let numbers = |text: &str| text.split(',').map(number).collect::<Option<Vec<f64>>>();
    let whole = |text: &str| text.parse::<u32>().ok();
    match key {
        "cpus" => {
            let cpus = numbers(value);
            table.cpus = cpus.ok_or_else(|| wrong("CPUs for each GPU, such as `1,3,12`"))?;
        }
        "memory" => {
            let memory: Option<Vec<u32>> = value.split(',').map(whole).collect();
            table.memory_mib =
                memory.ok_or_else(|| wrong("MiB for each GPU, such as `32000,64000`"))?;
        }
        "usual" => {
            let pair = value.split_once(',').and_then(|(a, b)| Some((number(a)?, whole(b)?)));
            table.usual = pair.ok_or_else(|| wrong("CPUs and MiB, such as `3,64000`"))?;
        }
        "parts" => {
            let rows: Option<Vec<Vec<f64>>> = value.split('/').map(numbers).collect();
            table.parts =
                rows.ok_or_else(|| wrong("a row for each number of CPUs, such as `0.4/1/2.9`"))?;
        }
        _ => return Err(InputError::unknown(line, "sensitive", key, KEYS)),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::scenario::parse;

    const TEXT: &str = "cluster 1x8 v100\nhost cpus 24 memory 512000\n\
        sensitive net cpus=1,3,12 memory=64000 usual=3,64000 parts=0.4/1/2.9\n\
        job a wants 1 work 10s model net\n";

    #[test]
    fn hosts_and_models_that_depend_on_them_are_read() {
        let scenario = parse(TEXT).unwrap();
        let node = &scenario.cluster.nodes[0];
        assert_eq!((node.cpus, node.memory_mib), (24, 512_000));
        let model = scenario.workload.catalog.find("net").unwrap();
        let table = &scenario.workload.catalog.get(model).host[0];
        assert_eq!((table.part(12.0, 64_000.0), table.part(3.0, 0.0)), (2.9, 1.0));
    }

    #[test]
    fn faults_name_the_line() {
        for (from, to, expected) in [
            ("cpus 24", "cpus many", "line 2: `host` cannot be `cpus many memory 512000`"),
            ("cpus=1,3,12", "cpus=1,x", "line 3: `cpus` cannot be `1,x`"),
            ("usual=3,", "usual=1,", "line 3: `sensitive` cannot be"),
            ("parts=0.4/1/2.9", "parts=0.4/1", "line 3: `sensitive` cannot be"),
            ("parts=", "part=", "line 3: `sensitive` cannot be `part`"),
        ] {
            let found = parse(&TEXT.replacen(from, to, 1)).unwrap_err().to_string();
            assert!(found.starts_with(expected), "{found}\n  does not start with\n{expected}");
        }
    }
}
