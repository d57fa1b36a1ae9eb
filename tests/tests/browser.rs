//! The page that `-o x.html` writes, in a real browser: of recordings of real programs, of one whose
//! names are hostile, and of a large one.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use offwake_recording::{Function, Recording, ThreadEvent, ThreadKind, stream, units::Timestamp};
use offwake_tests::{
    browser::{Browser, Scheme, key},
    offwake::Offwake,
    paths,
};
use serde_json::Value;
use tempfile::TempDir;

/// How long a report of a million waits may take a binary without optimizations.
const PATIENCE: Duration = Duration::from_secs(300);

/// A page in a directory of its own.
struct Page {
    path: PathBuf,
    _directory: TempDir,
}

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../profiler/tests/data/{name}.offwake"))
}

/// The incident `postgres-row-lock`: a client, two sessions of PostgreSQL, and the client that is idle in a transaction.
/// `rebase-recording --also` made the last three the target too, and nobody's.
fn postgres() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("recordings/postgres.offwake")
}

/// The page of a recording.
fn page(recording: &[u8]) -> Result<Page> {
    let directory = paths::scratch_directory()?;
    fs::write(directory.path().join("x.offwake"), recording)?;
    let outcome = Offwake::in_directory(directory.path())?
        .args(["report", "x.offwake", "-o", "x.html"])
        .start()?
        .outcome_within(PATIENCE)?;
    ensure!(outcome.status.success(), "{outcome}");
    Ok(Page { path: directory.path().join("x.html").canonicalize()?, _directory: directory })
}

/// A browser that shows the page, drawn to its end.
fn shown(page: &Page) -> Result<Browser> {
    let browser = Browser::start(1280, 900)?;
    browser.open(&page.path)?;
    browser.until("return document.getElementById('head').dataset.drawn === 'yes'")?;
    browser.until("return document.querySelectorAll('.flame .box').length > 1")?;
    Ok(browser)
}

fn number(browser: &Browser, script: &str) -> Result<u64> {
    let value = browser.run(script)?;
    value.as_u64().with_context(|| format!("{script}: {value}"))
}

fn words(browser: &Browser, script: &str) -> Result<String> {
    let value = browser.run(script)?;
    Ok(value.as_str().with_context(|| format!("{script}: {value}"))?.to_owned())
}

#[test]
fn pages_of_real_programs_open_alone_and_without_complaint() -> Result<()> {
    let browser = Browser::start(1280, 900)?;
    for name in ["demo", "disk", "make", "pipe", "python", "redis", "tree"] {
        let page = page(&fs::read(data(name))?)?;
        browser.open(&page.path)?;
        browser.until("return document.getElementById('head').dataset.drawn === 'yes'")?;
        browser.until("return document.querySelectorAll('.flame .box').length > 1")?;
        browser.console_is_empty().context(name)?;
        let requests = browser.requests()?;
        ensure!(!requests.is_empty(), "{name}: not even the page was asked for");
        for url in requests {
            let own = format!("file://{}", page.path.display());
            ensure!(url == own || url == "data:,", "{name}: it asked for {url}");
        }
        let policy = "return document.querySelector('meta[http-equiv]').content.includes(\"default-src 'none'\")";
        ensure!(browser.run(policy)? == Value::Bool(true), "{name}");
        for section in ["verdict", "waits-body", "flame-body", "graph-body", "timeline-body"] {
            let text = words(
                &browser,
                &format!("return document.getElementById('{section}').textContent"),
            )?;
            ensure!(!text.is_empty() && !text.contains("undefined"), "{name}: {section}: {text}");
            ensure!(!text.contains("NaN"), "{name}: {section}: {text}");
        }
    }
    Ok(())
}

#[test]
fn the_policy_lets_no_other_script_run() -> Result<()> {
    let browser = shown(&page(&fs::read(data("redis"))?)?)?;
    // As a name would that had become markup.
    let planted = "const s = document.createElement('script'); s.textContent = 'window.ran = 1'; \
        document.body.append(s); return window.ran === undefined";
    ensure!(browser.run(planted)? == Value::Bool(true));
    Ok(())
}

#[test]
fn the_page_begins_with_what_holds_the_target_up() -> Result<()> {
    let browser = shown(&page(&fs::read(data("redis"))?)?)?;
    let first = words(&browser, "return document.querySelector('#verdict li').innerText")?;
    for part in ["redis-server", "%", "held by redis-benchmark", "← cause"] {
        ensure!(first.contains(part), "no {part} in {first}");
    }
    // In the first screen, before any picture.
    let bottom = "return document.querySelector('#verdict li').getBoundingClientRect().bottom \
        < innerHeight";
    ensure!(browser.run(bottom)? == Value::Bool(true));
    Ok(())
}

/// Says what of the first screen is not on it; nothing if all is.
const NOT_ON_FIRST_SCREEN: &str = "\
    const seen = (one) => { const box = one.getBoundingClientRect(); return one.checkVisibility() \
        && box.width > 0 && box.height > 0 && box.left >= 0 && box.top >= 0 \
        && box.right <= innerWidth && box.bottom <= innerHeight; }; \
    const within = (one, other) => { const [a, b] = [one, other].map((it) => it.getBoundingClientRect()); \
        return a.left >= b.left && a.top >= b.top && a.right <= b.right && a.bottom <= b.bottom; }; \
    const missing = []; \
    const wanted = (name, list, least) => { if (list.length < least) { missing.push(`${name}: ${list.length}`); } \
        list.filter((one) => !seen(one)).forEach((one) => missing.push(`${name}: ${one.textContent}`)); }; \
    const all = (selector) => [...document.querySelectorAll(selector)]; \
    if (scrollY !== 0) { missing.push('scrolled'); } \
    wanted('finding', all('#verdict li').slice(0, 1), 1); \
    wanted('cause', all('#verdict li:first-child .cause'), 1); \
    wanted('node', all('.graph .node'), 3); \
    all('.graph .node').filter((node) => !within(node, document.querySelector('.graph'))) \
        .forEach((node) => missing.push(`cut: ${node.textContent}`)); \
    const svg = document.querySelector('.graph svg'); \
    const letters = 12 * svg.getBoundingClientRect().width / svg.viewBox.baseVal.width; \
    if (letters < 8) { missing.push(`letters of ${letters} pixels`); } \
    const level = (box) => Number(box.getAttribute('aria-level')); \
    wanted('box', all('.flame .box').filter((box) => level(box) <= 3), 3); \
    return missing.join('; ');";

#[test]
fn the_first_screen_has_the_findings_the_graph_and_the_top_of_the_flame_graph() -> Result<()> {
    let browser = Browser::start(1600, 1000)?;
    for (width, height) in [(1600, 1000), (1280, 900)] {
        browser.resize_view(width, height)?;
        for (name, recording) in [("demo", data("demo")), ("postgres", postgres())] {
            let page = page(&fs::read(recording)?)?;
            browser.open(&page.path)?;
            browser.until("return document.getElementById('head').dataset.drawn === 'yes'")?;
            browser.until("return document.querySelectorAll('.flame .box').length > 1")?;
            browser.until("return document.querySelectorAll('.graph .node').length > 1")?;
            let missing = words(&browser, NOT_ON_FIRST_SCREEN)?;
            ensure!(missing.is_empty(), "{name} at {width}×{height}: {missing}");
        }
    }
    // On a narrow window they are below each other, and the graph is no higher than a part of it.
    browser.resize_view(700, 900)?;
    let missing = words(&browser, NOT_ON_FIRST_SCREEN)?;
    ensure!(!missing.is_empty(), "a test that finds nothing missing here finds nothing");
    let high = number(
        &browser,
        "return Math.round(document.querySelector('.graph').getBoundingClientRect().height)",
    )?;
    ensure!((1..=430).contains(&high), "{high} pixels");
    browser.console_is_empty()
}

#[test]
fn only_a_loss_that_could_change_the_answer_stands_above_the_findings() -> Result<()> {
    let notes = "return document.getElementById('notes').innerText";
    let recording = stream::read(&fs::read(data("demo"))?[..], 64 << 20)?;
    let shown_of = |recording: &Recording| -> Result<Browser> {
        let mut bytes = Vec::new();
        stream::write(recording, &mut bytes)?;
        shown(&page(&bytes)?)
    };
    let mut few = recording.clone();
    few.loss.stacks = 3;
    let browser = shown_of(&few)?;
    ensure!(words(&browser, notes)?.is_empty(), "{}", words(&browser, notes)?);
    let foot = words(&browser, "return document.getElementById('foot').innerText")?;
    ensure!(foot.contains("no relevant loss (3 stacks)"), "{foot}");
    let mut many = recording;
    many.loss.records = 1;
    many.waits.retain(|wait, _| wait.seq % 3 != 0);
    let browser = shown_of(&many)?;
    let said = words(&browser, notes)?;
    ensure!(said.contains("INCOMPLETE: "), "{said}");
    Ok(())
}

#[test]
fn a_search_marks_what_it_finds_and_says_how_much() -> Result<()> {
    let browser = shown(&page(&fs::read(data("demo"))?)?)?;
    let all = number(&browser, "return document.querySelectorAll('.waits .row').length")?;
    browser.press("/pause_until".chars())?;
    browser.until("return document.querySelectorAll('.flame .match').length > 0")?;
    let found = words(&browser, "return document.getElementById('found').textContent")?;
    ensure!(found.contains("flame graph ") && found.contains('%'), "{found}");
    let left = number(&browser, "return document.querySelectorAll('.waits .row').length")?;
    ensure!(left > 0 && left < all, "{left} of {all} rows");
    let unmarked = "return [...document.querySelectorAll('.flame .match')]\
        .some((box) => !box.getAttribute('aria-label').includes('pause_until'))";
    ensure!(browser.run(unmarked)? == Value::Bool(false));
    browser.press([key::ESCAPE])?;
    browser.until("return document.querySelectorAll('.flame .match').length === 0")?;
    ensure!(all == number(&browser, "return document.querySelectorAll('.waits .row').length")?);
    browser.console_is_empty()
}

#[test]
fn a_click_in_the_flame_graph_zooms_and_escape_goes_back() -> Result<()> {
    let browser = shown(&page(&fs::read(data("redis"))?)?)?;
    let width = "return Math.round(document.querySelectorAll('.flame .box.k1')[1]\
        .getBoundingClientRect().width)";
    let narrow = number(&browser, width)?;
    browser.run("document.querySelectorAll('.flame .box.k1')[1].click()")?;
    browser.until("return document.querySelectorAll('.flame .box.above').length === 1")?;
    let whole = number(
        &browser,
        "return Math.round(document.querySelector('.flame .box.k1').getBoundingClientRect().width)",
    )?;
    ensure!(whole > narrow, "{whole} pixels after zooming, {narrow} before");
    browser.press([key::ESCAPE])?;
    browser.until("return document.querySelectorAll('.flame .box.above').length === 0")?;
    ensure!(number(&browser, width)? == narrow);
    browser.console_is_empty()
}

#[test]
fn a_wait_opens_into_its_chain_with_the_stacks_of_every_hop() -> Result<()> {
    let browser = shown(&page(&fs::read(data("demo"))?)?)?;
    // The first of them may be a sleep, which no thread ended.
    browser
        .run("document.querySelectorAll('.waits button.toggle').forEach((one) => one.click())")?;
    browser.until("return document.querySelectorAll('.chain').length > 1")?;
    let hops = number(
        &browser,
        "return Math.max(...[...document.querySelectorAll('.chain .part')]\
            .map((part) => part.querySelectorAll('.hop .nth').length))",
    )?;
    ensure!(hops > 1, "the longest chain has {hops} hops");
    // Every hop that has a stack shows its frames once it is opened, and not before.
    let hidden = "return [...document.querySelectorAll('.chain .frames')]\
        .every((frames) => !frames.checkVisibility())";
    ensure!(browser.run(hidden)? == Value::Bool(true));
    browser.run("document.querySelectorAll('.chain summary').forEach((one) => one.click())")?;
    let frames = "return [...document.querySelectorAll('.chain details')]\
        .every((hop) => hop.querySelector('.frames li').checkVisibility())";
    ensure!(browser.run(frames)? == Value::Bool(true));
    let shares = words(
        &browser,
        "return [...document.querySelectorAll('.chain .leaf')].map((leaf) => leaf.textContent).join()",
    )?;
    ensure!(shares.contains("[timer]") && shares.contains('%'), "{shares}");
    browser.console_is_empty()
}

#[test]
fn everything_is_reached_and_worked_by_the_keyboard_alone() -> Result<()> {
    let browser = shown(&page(&fs::read(data("demo"))?)?)?;
    let mut reached = Vec::new();
    let place = "const at = document.activeElement; \
        return at === document.body ? '' : at.closest('section, header, nav')?.id || 'bar'";
    for _ in 0..200 {
        browser.press([key::TAB])?;
        let at = words(&browser, place)?;
        if !reached.contains(&at) {
            reached.push(at);
        }
        if reached.iter().any(|at| at == "ledger") {
            break;
        }
    }
    for section in ["head", "bar", "findings", "waits", "flame", "graph", "timeline", "ledger"] {
        ensure!(reached.iter().any(|at| at == section), "no {section} in {reached:?}");
    }
    let outlined = "return getComputedStyle(document.activeElement).outlineStyle !== 'none'";
    ensure!(browser.run(outlined)? == Value::Bool(true), "focus can't be seen");

    // The flame graph, by hops and with all frames: down twice, zoom, and back.
    for expected in ["offwake-demo", "waiting thread"] {
        browser.run("document.querySelector('.flame .box').focus()")?;
        browser.press([key::DOWN, key::RIGHT, key::ENTER])?;
        browser.until("return document.querySelectorAll('.flame .box.above').length === 1")?;
        let said = words(&browser, "return document.querySelector('.said').textContent")?;
        ensure!(said.contains(expected) && said.contains('%'), "{said}");
        browser.press([key::ESCAPE])?;
        browser.until("return document.querySelectorAll('.flame .box.above').length === 0")?;
        browser.run("document.querySelector('#flame-body button').focus()")?;
        browser.press([key::ENTER])?;
    }

    // The table: the second row opens and closes.
    browser.run("document.querySelector('.waits button.toggle').focus()")?;
    browser.press([key::DOWN, key::RIGHT])?;
    browser.until("return document.querySelectorAll('.chain').length === 1")?;
    browser.press([key::LEFT])?;
    browser.until("return document.querySelectorAll('.chain').length === 0")?;

    // The timeline: the next wait is told, and zoomed to.
    browser.run("document.querySelector('.lanes').focus()")?;
    browser.press(['n', key::ENTER])?;
    let details = words(&browser, "return document.getElementById('wait-details').innerText")?;
    ensure!(details.contains("waited") && details.contains("<- "), "{details}");

    // The ledger: a process opens into its threads.
    browser.run("document.querySelector('.rows').focus()")?;
    let rows =
        number(&browser, "return document.querySelectorAll('.rows [role=rowheader]').length")?;
    browser.press([key::RIGHT])?;
    browser.until(&format!(
        "return document.querySelectorAll('.rows [role=rowheader]').length > {rows}"
    ))?;

    browser.press(['?'])?;
    browser.until("return document.getElementById('keys').open")?;
    browser.press([key::ESCAPE])?;
    browser.until("return !document.getElementById('keys').open")?;
    browser.console_is_empty()
}

#[test]
fn dark_follows_the_system_and_the_button_turns_it_round() -> Result<()> {
    let browser = Browser::start(1280, 900)?;
    let page = page(&fs::read(data("redis"))?)?;
    let ground = "return getComputedStyle(document.body).backgroundColor";
    browser.prefer(Scheme::Light)?;
    browser.open(&page.path)?;
    let light = words(&browser, ground)?;
    browser.prefer(Scheme::Dark)?;
    let dark = words(&browser, ground)?;
    ensure!(light == "rgb(255, 255, 255)" && dark != light, "{light} {dark}");
    browser.click("#theme")?;
    ensure!(words(&browser, ground)? == light);
    browser.press(['t'])?;
    ensure!(words(&browser, ground)? == dark);
    browser.console_is_empty()
}

#[test]
fn a_narrow_window_scrolls_its_tables_and_not_the_page() -> Result<()> {
    let browser = Browser::start(500, 800)?;
    browser.open(&page(&fs::read(data("demo"))?)?.path)?;
    browser.until("return document.querySelectorAll('.flame .box').length > 1")?;
    let wider = "return document.documentElement.scrollWidth - innerWidth";
    let wider = browser.run(wider)?;
    ensure!(wider.as_i64().is_some_and(|pixels| pixels <= 0), "{wider} pixels too wide");
    Ok(())
}

#[test]
fn hostile_names_run_nothing_and_can_be_seen() -> Result<()> {
    const NAME: &str = "</script><script>alert(1)</script><img src=x onerror=alert(2)>";
    let mut recording = stream::read(&fs::read(data("demo"))?[..], 64 << 20)?;
    for thread_event in &mut recording.thread_events {
        thread_event.comm = format!("{NAME}\u{1b}[2J\u{202e}{{{{code}}}}");
    }
    for frame in recording.stacks.frames.values_mut() {
        frame.functions = vec![Function::named(format!("{NAME}\u{7}\u{2028}__proto__"))];
    }
    recording.meta.target = NAME.to_owned();
    recording.meta.host = "constructor".to_owned();
    let mut bytes = Vec::new();
    stream::write(&recording, &mut bytes)?;
    let page = page(&bytes)?;
    let browser = shown(&page)?;
    browser.click(".waits button.toggle")?;
    browser.run("document.querySelectorAll('.chain summary').forEach((one) => one.click())")?;
    browser.press("/<script>".chars())?;
    browser.until("return document.querySelectorAll('.flame .match').length > 0")?;
    ensure!(!browser.has_dialog()?, "a name opened a dialog");
    ensure!(number(&browser, "return document.scripts.length")? == 3);
    ensure!(number(&browser, "return document.images.length")? == 0);
    let text = words(&browser, "return document.body.innerText")?;
    ensure!(text.contains("</script><script>alert(1)") && text.contains("\\x1b[2J\\x202e"));
    ensure!(!text.contains('\u{202e}') && !text.contains('\u{1b}'));
    for url in browser.requests()? {
        ensure!(url == format!("file://{}", page.path.display()) || url == "data:,", "{url}");
    }
    browser.console_is_empty()
}

/// 5,000 threads of 500 processes, 20 waits each. A few that never wait wake them.
fn large() -> Recording {
    const THREADS: u32 = 5_000;
    const WAITS: u64 = 20;
    const WAKERS: u32 = 10;
    let template = stream::read(&fs::read(data("pipe")).unwrap_or_default()[..], 64 << 20);
    let mut recording = template.unwrap_or_default();
    let (start, end) = (Timestamp(1_000_000_000), Timestamp(11_000_000_000));
    let waits: Vec<_> = recording.waits.iter().filter(|wait| wait.wake.is_some()).take(1).collect();
    let thread_events = recording.thread_events.clone();
    recording.meta.window = offwake_recording::Window { start, end };
    recording.thread_events.clear();
    recording.samples.clear();
    recording.preemptions.clear();
    recording.exits.clear();
    recording.waits = Default::default();
    let (Some(wait), Some(thread_event)) = (waits.first(), thread_events.first()) else {
        return recording;
    };
    let tgid = |tid: u32| offwake_recording::units::Tgid(1_000 + tid / 10 * 10);
    for n in 0..THREADS + WAKERS {
        let tid = offwake_recording::units::Tid(1_000 + n);
        let comm = format!("pool-{}", n % 97);
        recording.thread_events.push(ThreadEvent {
            at: start,
            reason: offwake_recording::ThreadEventReason::Opening,
            tid,
            old_tid: None,
            tgid: tgid(n),
            kind: ThreadKind::User,
            in_target: n < THREADS,
            phase: offwake_recording::Phase::OnCpu,
            seq: 0,
            created: Timestamp(u64::from(n) + 1),
            comm,
            ..thread_event.clone()
        });
        for nth in 0..if n < THREADS { WAITS } else { 0 } {
            let mut wait = *wait;
            (wait.tid, wait.tgid, wait.in_target) = (tid, tgid(n), true);
            wait.seq = u32::try_from(nth).unwrap_or(0) + 1;
            wait.off = Timestamp(start.0 + nth * 500_000_000 + u64::from(n) * 1_000);
            wait.on = Timestamp(wait.off.0 + 30_000_000 + u64::from(n % 7) * 1_000_000);
            if let Some(wake) = &mut wait.wake {
                wake.at = Timestamp(wait.on.0 - 1_000);
                let waker = THREADS + u32::try_from(nth).unwrap_or(0) % WAKERS;
                (wake.current.tid, wake.current.tgid) =
                    (offwake_recording::units::Tid(1_000 + waker), tgid(waker));
            }
            recording.waits.push(&wait);
        }
    }
    recording.sort();
    recording
}

#[test]
fn five_thousand_threads_open_with_few_elements() -> Result<()> {
    let mut bytes = Vec::new();
    stream::write(&large(), &mut bytes)?;
    let page = page(&bytes)?;
    let size = fs::metadata(&page.path)?.len();
    ensure!(size < 8_000_000, "the page has {size} bytes");
    let browser = shown(&page)?;
    let elements = number(&browser, "return document.querySelectorAll('*').length")?;
    ensure!(elements < 10_000, "the page has {elements} elements");
    let text = words(&browser, "return document.getElementById('timeline-body').innerText")?;
    ensure!(text.contains("4,850 more threads"), "{text}");
    // All threads are in the ledger, and those in sight are elements.
    browser.run("[...document.querySelectorAll('#ledger-body button')].at(2).click()")?;
    browser
        .until("return document.querySelector('.rows').getAttribute('aria-rowcount') === '5001'")?;
    ensure!(
        number(&browser, "return document.querySelectorAll('.rows [role=rowheader]').length")? < 60
    );
    browser.console_is_empty()
}
