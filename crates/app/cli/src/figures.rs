//! The figures of a comparison, each a file of its own.

use crate::args::OutArgs;
use crate::failure::Failure;
use crate::output::{Output, reason};
use std::path::Path;
use trainyard_report::Comparison;
use trainyard_report::html::{self, Colours, More};

/// Writes every figure as SVG and as PNG, as far as asked for, and says so to people.
pub fn write(
    comparison: &Comparison,
    more: &More<'_>,
    out: &OutArgs,
    output: &Output,
) -> Result<(), Failure> {
    if let Some(folder) = &out.svg {
        let figures = html::figures(comparison, more, Colours::Screen);
        let files = figures.into_iter().map(|(name, text)| Ok((name, text.into_bytes())));
        write_all((folder, "svg"), files, (out, output))?;
    }
    if let Some(folder) = &out.png {
        let painter = painter()?;
        let figures = html::figures(comparison, more, Colours::Paper);
        let files = figures.into_iter().map(|(name, text)| Ok((name, painter(&text)?)));
        write_all((folder, "png"), files, (out, output))?;
    }
    Ok(())
}

/// Says before anything runs that this build cannot draw what was asked for.
pub fn refuse_early(out: &OutArgs) -> Result<(), Failure> {
    out.png.as_ref().map_or(Ok(()), |_| painter().map(|_| ()))
}

fn write_all(
    (folder, ending): (&Path, &str),
    files: impl Iterator<Item = Result<(String, Vec<u8>), Failure>>,
    (out, output): (&OutArgs, &Output),
) -> Result<(), Failure> {
    let failed = |error: std::io::Error| {
        let reason = reason(&error);
        Failure::Operation(format!("{}: cannot be made: {reason}", folder.display()))
    };
    std::fs::create_dir_all(folder).map_err(failed)?;
    let mut count = 0;
    for file in files {
        let (name, bytes) = file?;
        let path = folder.join(format!("{name}.{ending}"));
        output.write_file(&path, |file| file.write_all(&bytes))?;
        count += 1;
    }
    if out.json || out.csv {
        return Ok(());
    }
    output.print(&format!("Figures: {count} in {}\n", folder.display()))
}

/// Makes a PNG of an SVG.
type Painter = Box<dyn Fn(&str) -> Result<Vec<u8>, Failure>>;

#[cfg(feature = "png")]
fn painter() -> Result<Painter, Failure> {
    let paint = crate::png::Paint::new();
    Ok(Box::new(move |svg| {
        paint
            .png(svg)
            .map_err(|error| Failure::Operation(format!("a figure cannot be drawn: {error}")))
    }))
}

#[cfg(not(feature = "png"))]
fn painter() -> Result<Painter, Failure> {
    Err(Failure::Usage(
        "this build draws no PNG: build it with `--features png`, or take --svg".to_owned(),
    ))
}
