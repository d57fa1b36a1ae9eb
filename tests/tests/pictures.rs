//! Flame graphs as readers see them that we did not write: librsvg, and a browser that runs their
//! script.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, ensure};
use offwake_tests::{browser::Browser, offwake::Offwake, paths};
use serde_json::{Value, json};
use tempfile::TempDir;

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
        &["--frames", "all"],
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

/// A picture in a directory of its own.
struct Picture {
    path: PathBuf,
    _directory: TempDir,
}

/// How much a picture of the demo's recording shows of each hop, what the text of its first frame
/// begins with, and that of one frame below it.
struct Detail {
    frames: &'static str,
    root: &'static str,
    first: &'static str,
}

const DETAILS: [Detail; 2] = [
    Detail { frames: "hops", root: "all threads: ", first: "1: offwake-demo" },
    Detail { frames: "all", root: "all: ", first: "client-1" },
];

/// The picture of the demo's recording.
fn picture(frames: &str) -> Result<Picture> {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../profiler/tests/data/demo.offwake");
    let directory = paths::scratch_directory()?;
    let report = Offwake::in_directory(directory.path())?
        .arg("report")
        .arg(&data)
        .args(["--frames", frames, "-o", "x.svg"])
        .run()?;
    ensure!(report.status.success(), "{report}");
    Ok(Picture { path: directory.path().join("x.svg").canonicalize()?, _directory: directory })
}

/// A browser that shows the picture as its script has drawn it.
fn shown(picture: &Picture, state: &str) -> Result<Browser> {
    let browser = Browser::start(1280, 900)?;
    browser.open(Path::new(&format!("{}{state}", picture.path.display())))?;
    browser.until("return !document.documentElement.hasAttribute('viewBox')")?;
    Ok(browser)
}

/// A function that finds the first frame whose text begins so.
const FRAME: &str = "const frame = (name) => [...document.querySelectorAll('#frames > g')]\
    .find((group) => group.querySelector('title').textContent.startsWith(name));\
    const point = (name, kind) => frame(name).querySelector('rect')\
        .dispatchEvent(new MouseEvent(kind, { bubbles: true }));";

fn run(browser: &Browser, script: &str) -> Result<Value> {
    browser.run(&format!("{FRAME} return {script}"))
}

/// How many frames are of a class that the script gives.
fn count(browser: &Browser, class: &str) -> Result<u64> {
    let value = run(browser, &format!("document.querySelectorAll('#frames > .{class}').length"))?;
    value.as_u64().with_context(|| format!("{class}: {value}"))
}

#[test]
fn a_picture_is_as_wide_as_its_window_and_complains_of_nothing() -> Result<()> {
    for Detail { frames, root, first } in DETAILS {
        let picture = picture(frames)?;
        let browser = shown(&picture, "")?;
        let width = format!("frame('{root}').querySelector('rect').getBoundingClientRect().width");
        let width = run(&browser, &width)?;
        let window = run(&browser, "document.documentElement.clientWidth - 20")?;
        ensure!(
            (width.as_f64().unwrap_or(0.0) - window.as_f64().unwrap_or(0.0)).abs() < 2.0,
            "{width}"
        );
        browser.run(&format!("{FRAME} point('{first}', 'mouseover')"))?;
        let details = run(&browser, "document.getElementById('details').textContent")?;
        let details = details.as_str().unwrap_or_default();
        ensure!(details.starts_with(&format!("Frame: {first}")), "{details}");
        ensure!(details.contains("wait") && details.contains('%'), "{details}");
        let own = format!("file://{}", picture.path.display());
        for url in browser.requests()? {
            ensure!(url == own || url == "data:,", "it asked for {url}");
        }
        browser.console_is_empty()?;
    }
    Ok(())
}

#[test]
fn a_click_zooms_in_and_the_address_keeps_it() -> Result<()> {
    for Detail { frames, first, .. } in DETAILS {
        let picture = picture(frames)?;
        let browser = shown(&picture, "")?;
        let reset = "getComputedStyle(document.getElementById('unzoom')).display";
        let width = format!("frame('{first}').querySelector('rect').getAttribute('width')");
        let narrow = run(&browser, &width)?;
        ensure!(run(&browser, reset)? == "none" && count(&browser, "hidden")? == 0);
        browser.run(&format!("{FRAME} point('{first}', 'click')"))?;
        ensure!(run(&browser, &width)? == "100.0000%" && run(&browser, reset)? != "none");
        let hidden = count(&browser, "hidden")?;
        ensure!(hidden > 0 && count(&browser, "above")? == 1, "{hidden} frames are hidden");
        // Another browser that is given the address shows the same.
        let address = run(&browser, "location.search")?;
        let other = shown(&picture, address.as_str().context("no address")?)?;
        other.until("return document.querySelectorAll('#frames > .hidden').length > 0")?;
        ensure!(run(&other, &width)? == "100.0000%" && count(&other, "hidden")? == hidden);
        browser.click("#unzoom")?;
        ensure!(run(&browser, &width)? == narrow && run(&browser, "location.search")? == "");
        ensure!(count(&browser, "hidden")? == 0 && count(&browser, "above")? == 0);
        browser.console_is_empty()?;
    }
    Ok(())
}

/// A frame of hops has three lines: who, how long and for what, and in which function.
#[test]
fn every_line_of_a_hop_has_as_much_room_as_its_frame() -> Result<()> {
    let browser = shown(&picture("hops")?, "")?;
    let lines = "[...frame('4: ').querySelectorAll('text')].map((line) => line.textContent)";
    let before = run(&browser, lines)?;
    let before = before.as_array().context("no lines")?.clone();
    ensure!(before.len() == 3 && before.iter().any(|line| line.to_string().contains("..")));
    browser.run(&format!("{FRAME} point('4: ', 'click')"))?;
    let after = run(&browser, lines)?;
    let after = after.as_array().context("no lines")?;
    ensure!(after.len() == 3 && !after.iter().any(|line| line.to_string().contains("..")));
    for (after, word) in after.iter().zip(["offwake-demo", "waits for", "in "]) {
        ensure!(after.to_string().contains(word), "{after}");
    }
    browser.console_is_empty()
}

#[test]
fn a_search_marks_what_it_finds_and_says_how_much() -> Result<()> {
    let browser = shown(&picture("all")?, "")?;
    let matched = "document.getElementById('matched').textContent";
    browser.press_with_ctrl('f')?;
    browser.answer_dialog("^client-[12]")?;
    browser.until("return document.querySelectorAll('#frames > .match').length > 0")?;
    let others = "[...document.querySelectorAll('#frames > .match > title')]\
        .some((title) => !/^client-[12]/.test(title.textContent))";
    ensure!(run(&browser, others)? == json!(false));
    let green = "getComputedStyle(document.querySelector('#frames > .match > rect')).fill";
    ensure!(run(&browser, green)? == "rgb(0, 220, 130)");
    let share = run(&browser, matched)?;
    let share = share.as_str().unwrap_or_default();
    ensure!(share.starts_with("Matched: ") && share != "Matched: 0.0%", "{share}");
    // The share is that of what is shown.
    browser.run(&format!("{FRAME} point('client-1', 'click')"))?;
    ensure!(run(&browser, matched)? == "Matched: 100%");
    browser.click("#unzoom")?;
    ensure!(run(&browser, matched)? == share);
    browser.click("#search")?;
    ensure!(count(&browser, "match")? == 0 && run(&browser, matched)? == " ");
    browser.console_is_empty()
}

#[test]
fn what_is_no_regular_expression_is_said() -> Result<()> {
    let browser = shown(&picture("hops")?, "?s=(")?;
    browser.until("return document.getElementById('matched').textContent.length > 1")?;
    let said = run(&browser, "document.getElementById('matched').textContent")?;
    ensure!(said.as_str().is_some_and(|said| said.contains("regular expression")), "{said}");
    ensure!(count(&browser, "match")? == 0);
    browser.console_is_empty()
}
