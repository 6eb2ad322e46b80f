//! Cells of a scenario: `cells v100 pair=2 node=4`, and `tenant a cells node=1,pair=2`.

use crate::cells_toml::{add_level, finish};
use crate::scenario::Line;
use trainyard_diagnostic::InputError;
use trainyard_types::{CellChain, CellCount, CellLevel, Cells, Cluster, Tenants, VirtualCluster};

/// Reads the lines about cells.
pub(crate) fn read(
    lines: &[Line<'_>],
    cluster: &mut Cluster,
    tenants: &Tenants,
) -> Result<(), InputError> {
    let mut cells = Cells::default();
    for line in lines.iter().filter(|line| line.word == "cells") {
        let chain = read_chain(line, cluster, &cells)?;
        cells.chains.push(chain);
    }
    let mut owner = None;
    for line in lines.iter().filter(|line| line.word == "tenant") {
        let mut words = line.rest.split_whitespace();
        let tenant = words.next().and_then(|name| tenants.find(name)).expect("it was read before");
        let Some(owned) = words.skip_while(|word| *word != "cells").nth(1) else { continue };
        let owned = owned.split(',').map(|part| read_owned(line, part, &cells));
        let owned = owned.collect::<Result<Vec<_>, _>>()?;
        cells.virtual_clusters.push(VirtualCluster { tenant, cells: owned });
        owner = Some(line.number);
    }
    finish(cells, cluster, owner)
}

fn read_chain(line: &Line<'_>, cluster: &Cluster, others: &Cells) -> Result<CellChain, InputError> {
    let mut words = line.rest.split_whitespace();
    let name = words.next().unwrap_or("");
    let kinds = cluster.kinds.iter().map(|kind| kind.name.as_str());
    let unknown = || InputError::unknown(line.number, "cells", name, kinds);
    let kind = cluster.kind(name).ok_or_else(unknown)?;
    if others.chains.iter().any(|chain| chain.kind == kind) {
        return Err(line.wrong("a type that no earlier line divides"));
    }
    let mut chain = CellChain { kind, levels: Vec::new() };
    for word in words {
        let (name, gpus) = pair(line, word)?;
        add_level(&mut chain, CellLevel { name: name.to_owned(), gpus }, cluster, others)
            .map_err(|(_, expected)| InputError::wrong(line.number, "cells", word, expected))?;
    }
    if chain.levels.is_empty() {
        return Err(line.wrong("a type and its levels, smallest first, such as `pair=2 node=8`"));
    }
    Ok(chain)
}

fn read_owned(line: &Line<'_>, part: &str, cells: &Cells) -> Result<CellCount, InputError> {
    let (name, count) = pair(line, part)?;
    let mut places = cells.chains.iter().enumerate().flat_map(|(chain, one)| {
        one.levels.iter().enumerate().map(move |(level, found)| (chain, level, found))
    });
    let names = cells.chains.iter().flat_map(|one| &one.levels).map(|one| one.name.as_str());
    let found = places.find(|(.., level)| level.name == name);
    let (chain, level, _) =
        found.ok_or_else(|| InputError::unknown(line.number, "cells", name, names))?;
    Ok(CellCount { chain: chain as u16, level: level as u16, count })
}

/// `name=3`.
fn pair<'a>(line: &Line<'_>, word: &'a str) -> Result<(&'a str, u32), InputError> {
    let expected = "a level and a whole number, such as `pair=2`";
    let wrong = || InputError::wrong(line.number, "cells", word, expected);
    let (name, number) = word.split_once('=').ok_or_else(wrong)?;
    let number = number.parse().ok().filter(|number| (1..=1_000_000).contains(number));
    Ok((name, number.ok_or_else(wrong)?))
}
