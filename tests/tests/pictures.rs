//! Flame graphs as a reader sees them that we did not write: librsvg.

use std::{path::Path, process::Command};

use anyhow::{Context, Result, ensure};
use offwake_tests::offwake::Offwake;

/// The size of a PNG: <https://www.w3.org/TR/png-3/#11IHDR>.
fn size_of_png(bytes: &[u8]) -> Result<(u32, u32)> {
    ensure!(bytes.starts_with(b"\x89PNG\r\n\x1a\n"), "no PNG");
    let number = |at: usize| -> Result<u32> {
        let bytes = bytes.get(at..at + 4).context("it ends too early")?;
        Ok(u32::from_be_bytes(bytes.try_into()?))
    };
    Ok((number(16)?, number(20)?))
}

fn attribute(svg: &str, name: &str) -> Result<u32> {
    let start = svg.split_once("<svg ").context("no picture")?.1;
    let value = start.split_once(&format!(" {name}=\"")).context("no such attribute")?.1;
    Ok(value.split_once('"').context("it never ends")?.0.parse()?)
}

#[test]
fn librsvg_draws_flame_graphs_of_every_kind() -> Result<()> {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../profiler/tests/data");
    let (demo, redis) = (data.join("demo.offwake"), data.join("redis.offwake"));
    let held = offwake_tests::paths::scratch_directory()?;
    for arguments in [
        &[][..],
        &["--flame", "off-wake"],
        &["--flame", "off-cpu", "--by", "cause"],
        &["--reverse", "--hide", "idle,external"],
        &["--diff", redis.to_str().context("a path of UTF-8")?],
    ] {
        let report = Offwake::in_directory(held.path())?
            .arg("report")
            .arg(&demo)
            .args(arguments)
            .args(["-o", "x.svg"])
            .run()?;
        ensure!(report.status.success(), "{report}");
        let svg = report.text("x.svg")?;
        let drawn = Command::new("rsvg-convert")
            .arg(report.path("x.svg"))
            .output()
            .context("rsvg-convert of librsvg2-bin")?;
        ensure!(drawn.status.success(), "{arguments:?}: {drawn:?}");
        let size = size_of_png(&drawn.stdout)?;
        ensure!(size == (attribute(&svg, "width")?, attribute(&svg, "height")?), "{size:?}");
    }
    Ok(())
}
