//! Cells and virtual clusters of a cluster in its TOML form.
//!
//! ```toml
//! [[cells]]
//! kind = "v100"
//! level = [{ name = "pair", gpus = 2 }, { name = "node", gpus = 8 }, { name = "rack", gpus = 32 }]
//! [[tenant]]
//! name = "vision"
//! cells = { node = 2, pair = 3 }
//! ```

use std::sync::Arc;
use trainyard_diagnostic::{InputError, Section};
use trainyard_types::{CellChain, CellCount, CellLevel, Cells, Cluster, Tenants, VirtualCluster};

/// Reads what is declared of cells, if anything is.
pub(crate) fn read(
    root: &Section<'_, '_>,
    cluster: &mut Cluster,
    tenants: &Tenants,
) -> Result<(), InputError> {
    let mut cells = Cells::default();
    for section in root.sections("cells")? {
        let chain = read_chain(&section, cluster, &cells)?;
        cells.chains.push(chain);
    }
    let mut owner = None;
    for section in root.sections("tenant")? {
        let Some(owned) = section.section("cells")? else { continue };
        let line = section.line_of("cells");
        if cells.chains.is_empty() {
            let expected = "a table `[[cells]]` that declares its levels";
            return Err(InputError::missing(line, "cells", expected));
        }
        owner = Some(line);
        let tenant = tenants.find(section.needed_text("name")?).expect("it was read before");
        cells.virtual_clusters.push(VirtualCluster { tenant, cells: owned_cells(&owned, &cells)? });
    }
    finish(cells, cluster, owner)
}

/// Puts cells into a cluster that can hold what is owned of them.
pub(crate) fn finish(
    cells: Cells,
    cluster: &mut Cluster,
    owner: Option<u64>,
) -> Result<(), InputError> {
    let Some(line) = owner else { return Ok(()) };
    if let Some(short) = cells.shortage(cluster) {
        let expected = format!(
            "at most {} cells `{}` in all virtual clusters together, larger cells aside",
            short.there, short.level
        );
        return Err(InputError::wrong(line, "cells", &short.owned.to_string(), expected));
    }
    cluster.cells = Some(Arc::new(cells));
    Ok(())
}

fn read_chain(
    section: &Section<'_, '_>,
    cluster: &Cluster,
    others: &Cells,
) -> Result<CellChain, InputError> {
    section.allow(&["kind", "level"])?;
    let name = section.needed_text("kind")?.to_lowercase();
    let kinds = cluster.kinds.iter().map(|kind| kind.name.as_str());
    let kind = cluster.kind(&name).ok_or_else(|| section.unknown("kind", kinds))?;
    if others.chains.iter().any(|chain| chain.kind == kind) {
        return Err(section.wrong("kind", "a type that no earlier `[[cells]]` divides"));
    }
    let mut chain = CellChain { kind, levels: Vec::new() };
    for level in section.sections("level")? {
        level.allow(&["name", "gpus"])?;
        let name = level.needed_text("name")?.to_owned();
        let gpus = level.needed_whole("gpus", 1..=1_000_000)? as u32;
        add_level(&mut chain, CellLevel { name, gpus }, cluster, others)
            .map_err(|(key, expected)| level.wrong(key, expected))?;
    }
    if chain.levels.is_empty() {
        let expected = "a list such as [{ name = \"node\", gpus = 8 }]";
        return Err(InputError::missing(section.line(), "level", expected));
    }
    Ok(chain)
}

/// Adds the next larger level, or says which key is wrong and what was expected.
pub(crate) fn add_level(
    chain: &mut CellChain,
    level: CellLevel,
    cluster: &Cluster,
    others: &Cells,
) -> Result<(), (&'static str, String)> {
    let known = others.chains.iter().flat_map(|chain| &chain.levels).chain(&chain.levels);
    if known.into_iter().any(|other| other.name == level.name) {
        return Err(("name", "a name that no other level has".to_owned()));
    }
    let Some(node) = chain.per_node(cluster) else {
        let expected = "a type whose nodes all have the same number of GPUs";
        return Err(("gpus", expected.to_owned()));
    };
    if !level.gpus.is_multiple_of(node) && !node.is_multiple_of(level.gpus) {
        let expected = format!("a number that divides the {node} GPUs of a node, or a multiple");
        return Err(("gpus", expected));
    }
    let below = chain.levels.last().map_or(1, |level| level.gpus);
    let grows = chain.levels.is_empty() || level.gpus > below;
    if !grows || !level.gpus.is_multiple_of(below) {
        return Err(("gpus", format!("a multiple of {below}, the size of the level before it")));
    }
    chain.levels.push(level);
    Ok(())
}

/// `{ node = 2, pair = 3 }`.
fn owned_cells(section: &Section<'_, '_>, cells: &Cells) -> Result<Vec<CellCount>, InputError> {
    let names: Vec<&str> =
        cells.chains.iter().flat_map(|one| &one.levels).map(|level| level.name.as_str()).collect();
    section.allow(&names)?;
    let mut counts = Vec::new();
    for (chain, one) in cells.chains.iter().enumerate() {
        for (level, declared) in one.levels.iter().enumerate() {
            if let Some(count) = section.whole(&declared.name, 1..=1_000_000)? {
                let (chain, level) = (chain as u16, level as u16);
                counts.push(CellCount { chain, level, count: count as u32 });
            }
        }
    }
    Ok(counts)
}
