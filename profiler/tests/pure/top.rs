//! The live view: screens that are settled cell by cell, and what keys do.

use std::{fs, path::Path};

use offwake::top::{ColourMode, Key, KeyAction, Period, ViewState, draw};
use offwake_analysis::{
    filter::Filter,
    frames::Frames,
    top::{Figures, FindingPart, RequestSearch, Since, TopAnalysis, TopData, Wanted, WindowLoss},
};
use offwake_recording::{
    Recording, stream,
    units::{Nanos, Tgid},
};
use ratatui::{Terminal, backend::TestBackend, style::Style};

use crate::{
    golden::{golden, report, service},
    requests::asks,
};

const MEMORY: usize = 64 << 20;
const SMALL: (u16, u16) = (80, 24);
pub const LARGE: (u16, u16) = (200, 60);

pub fn bytes(recording: &Recording) -> Vec<u8> {
    let mut bytes = Vec::new();
    stream::write(recording, &mut bytes).unwrap();
    bytes
}

pub fn picture_of(bytes: Vec<u8>) -> TopData {
    let wanted = Wanted { since: Since::Start, requests: RequestSearch::Find };
    TopAnalysis::new(Nanos(0), MEMORY).analyse(bytes, wanted).unwrap()
}

fn replayed(name: &str) -> TopData {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    picture_of(fs::read(data.join(format!("{name}.offwake"))).unwrap())
}

/// What is on a screen of this size: its text, and its styles.
fn screen(
    view: &ViewState,
    picture: Option<&TopData>,
    size: (u16, u16),
    paint: ColourMode,
) -> (String, Vec<Style>) {
    let mut terminal = Terminal::new(TestBackend::new(size.0, size.1)).unwrap();
    terminal.draw(|frame| draw(frame, view, picture, paint)).unwrap();
    let buffer = terminal.backend().buffer();
    let mut text = String::new();
    for row in buffer.content().chunks(usize::from(size.0)) {
        let line: String = row.iter().map(ratatui::buffer::Cell::symbol).collect();
        text.push_str(line.trim_end());
        text.push('\n');
    }
    (text, buffer.content().iter().map(ratatui::buffer::Cell::style).collect())
}

pub fn text(view: &ViewState, picture: &TopData, size: (u16, u16)) -> String {
    screen(view, Some(picture), size, ColourMode::Plain).0
}

/// Presses keys, one after another, of which none is to be answered with a deed.
fn press(view: &mut ViewState, picture: &TopData, keys: &[Key]) {
    for key in keys {
        assert_eq!(view.handle_key(*key, Some(picture)), KeyAction::Nothing, "{key:?}");
    }
}

fn typed(text: &str) -> Vec<Key> {
    text.chars().map(Key::Char).collect()
}

/// The rows of a table, which begin with a time.
fn rows_below<'t>(text: &'t str, title: &str) -> Vec<&'t str> {
    let lines = text.lines().skip_while(|line| !line.contains(title)).skip(2);
    lines.take_while(|line| nanos(line).is_some()).collect()
}

#[test]
fn screens_are_as_blessed() {
    let mut descended = ViewState::default();
    let service = picture_of(bytes(&service()));
    press(&mut descended, &service, &[Key::Enter]);
    let mut helped = ViewState::default();
    press(&mut helped, &service, &[Key::Char('?')]);
    for (name, view, picture, size) in [
        ("service.80x24", &ViewState::default(), &service, SMALL),
        ("service.200x60", &ViewState::default(), &service, LARGE),
        ("service.40x10", &ViewState::default(), &service, (40, 10)),
        ("service.chain.80x24", &descended, &service, SMALL),
        ("service.help.80x24", &helped, &service, SMALL),
        ("replay-redis.80x24", &ViewState::default(), &replayed("redis"), SMALL),
        ("replay-demo.200x60", &ViewState::default(), &replayed("demo"), LARGE),
    ] {
        golden(&format!("{name}.top.txt"), &text(view, picture, size));
    }
}

/// Whoever looks at a small terminal has to see who is the cause, not only that there is one.
#[test]
fn the_first_lines_of_a_small_screen_name_the_cause() {
    let screen = text(&ViewState::default(), &replayed("demo"), SMALL);
    let lines: Vec<&str> = screen.lines().take(8).collect();
    let cause = lines.iter().position(|line| line.contains("← cause, 9%")).expect(&screen);
    assert!(lines[..=cause].concat().contains("wait_for_seek"), "{screen}");
    assert!(lines[1].starts_with("1   31%  offwake-demo"), "{screen}");
    // It is told before what all this costs, and before how the time divides.
    let place = |word| screen.lines().position(|line| line.contains(word)).expect(word);
    assert!(place("← cause") < place("on-CPU ") && place("← cause") < place("offwake itself"));
    for (size, most) in [((40, 10), 5), ((80, 8), 4), ((60, 15), 6)] {
        let screen = text(&ViewState::default(), &replayed("demo"), size);
        let first: Vec<&str> = screen.lines().take(most).collect();
        assert!(first.iter().any(|line| line.contains("← cause")), "{size:?}: {screen}");
        assert!(first.concat().contains("offwake-demo 17589"), "{size:?}: {screen}");
    }
    // In a wait's chain and where tables have more room it is there as well.
    let mut descended = ViewState::default();
    press(&mut descended, &replayed("demo"), &[Key::Enter]);
    for size in [SMALL, LARGE] {
        let screen = text(&descended, &replayed("demo"), size);
        assert!(screen.contains("← cause"), "{screen}");
    }
}

/// With a process number of five digits a filter of 16 characters was cut on 80 columns.
#[test]
fn a_filter_is_shown_whole_however_long_the_name_of_the_target_is() {
    let mut picture = replayed("demo");
    let mut filtered = ViewState::default();
    press(&mut filtered, &picture, &typed("/OW-WAITER futex"));
    press(&mut filtered, &picture, &[Key::Enter]);
    let mut paused = filtered.clone();
    press(&mut paused, &picture, &[Key::Char('p')]);
    for target in ["pid 7", "pid 4194303 offwake-workload", &"container name ".repeat(9)] {
        target.clone_into(&mut picture.header.target);
        for size in [SMALL, (72, 24), LARGE] {
            let first_line = |view| text(view, &picture, size).lines().next().unwrap().to_owned();
            let (running, still) = (first_line(&filtered), first_line(&paused));
            assert!(running.ends_with("  filter: OW-WAITER futex"), "{size:?}: {running}");
            assert!(running.starts_with("offwake top: pid") || target.len() > 30, "{running}");
            assert!(still.ends_with("  PAUSED  filter: OW-WAITER futex"), "{size:?}: {still}");
            assert!(still.contains(", the last "), "{size:?}: {still}");
        }
    }
    // Where nothing is set and there is room, the name is whole.
    let first_line = text(&ViewState::default(), &picture, LARGE);
    assert!(first_line.contains(&"container name ".repeat(9)), "{first_line}");
}

#[test]
fn a_finding_on_screen_has_its_cause_with_it_and_one_without_cause_has_none() {
    for name in ["demo", "disk", "make", "pipe", "python", "redis", "tree"] {
        let picture = replayed(name);
        let report = report(&stream::read(&picture.bytes[..], MEMORY).unwrap(), &Filter::default());
        for (width, most) in [(40, 2), (60, 3), (80, 4), (80, 8), (100, 8), (200, 20)] {
            let lines = picture.header.findings.lines(width, most);
            assert!(lines.len() <= most && !lines.is_empty(), "{name} {width}×{most}: {lines:?}");
            assert!(lines.iter().all(|line| line.text.chars().count() <= width), "{lines:?}");
            let waiters = lines.iter().filter(|line| line.part == FindingPart::Waiter);
            for (number, waiter) in (1_usize..).zip(waiters) {
                // A first line of two lines is told from the next finding by its number.
                if !waiter.text.starts_with(&format!("{number:<2}")) {
                    break;
                }
                let from = lines.iter().position(|line| line == waiter).unwrap();
                let end = format!("{:<2}", number + 1);
                let own = lines[from..].iter().take_while(|line| !line.text.starts_with(&end));
                let causes: String = (own.filter(|line| line.part == FindingPart::Cause))
                    .map(|line| line.text.as_str())
                    .collect();
                let finding = &report.findings.list[number - 1];
                let has_cause = finding.lines.iter().any(|line| line.is_cause && line.depth > 0);
                let marks = ["← cause", "← same cause as", "← the cause is not known"];
                let is_marked = marks.iter().any(|mark| causes.contains(mark));
                assert_eq!(is_marked, has_cause, "{name} {width}×{most}: {lines:?}");
            }
        }
    }
}

/// Less than a hundredth of the target's time could not change the answer.
#[test]
fn a_loss_is_loud_only_if_it_could_change_the_answer() {
    let service = picture_of(bytes(&service()));
    assert!(matches!(&service.header.loss, WindowLoss::Relevant(_)), "{:?}", service.header.loss);
    let whole = replayed("demo");
    assert_eq!(whole.header.loss, WindowLoss::Nothing);
    let mut recording = stream::read(&whole.bytes[..], MEMORY).unwrap();
    recording.loss.stacks = 3;
    let picture = picture_of(bytes(&recording));
    assert!(matches!(&picture.header.loss, WindowLoss::Irrelevant(_)), "{:?}", picture.header.loss);
    let screen = text(&ViewState::default(), &picture, SMALL);
    assert!(screen.contains("no relevant loss (3 stacks)"), "{screen}");
}

#[test]
fn any_size_can_be_drawn() {
    let picture = picture_of(bytes(&service()));
    let mut descended = ViewState::default();
    press(&mut descended, &picture, &[Key::Enter]);
    for width in [1, 2, 7, 40, 79, 120, 300] {
        for height in [1, 2, 4, 5, 6, 9, 24, 41] {
            text(&ViewState::default(), &picture, (width, height));
            text(&descended, &picture, (width, height));
            screen(&ViewState::default(), None, (width, height), ColourMode::Colours);
        }
    }
}

#[test]
fn without_colours_there_are_none() {
    let picture = replayed("demo");
    let (plain_text, plain) =
        screen(&ViewState::default(), Some(&picture), SMALL, ColourMode::Plain);
    let (colour_text, colours) =
        screen(&ViewState::default(), Some(&picture), SMALL, ColourMode::Colours);
    let is_coloured = |style: &Style| {
        style.fg.is_some_and(|colour| colour != ratatui::style::Color::Reset)
            || style.bg.is_some_and(|colour| colour != ratatui::style::Color::Reset)
    };
    assert!(!plain.iter().any(is_coloured));
    assert!(colours.iter().any(is_coloured));
    // They say nothing that the text does not.
    assert_eq!(plain_text, colour_text);
}

#[test]
fn hostile_names_are_harmless_and_wide_ones_stay_in_their_columns() {
    let mut recording = service();
    for thread_event in &mut recording.thread_events {
        thread_event.comm = match thread_event.tid.0 {
            7 => "\u{1b}[31mx\n\u{202e}".to_owned(),
            8 => "世界世界世".to_owned(),
            _ => "e\u{301}\u{301}\u{301}\u{200b}".to_owned(),
        };
    }
    let picture = picture_of(bytes(&recording));
    let mut view = ViewState::default();
    for keys in [&[][..], &[Key::Enter]] {
        press(&mut view, &picture, keys);
        for size in [SMALL, LARGE] {
            let text = text(&view, &picture, size);
            assert!(text.chars().all(|c| c == '\n' || !c.is_control()), "{text:?}");
            assert!(!text.contains('\u{202e}'), "{text:?}");
            assert!(text.contains("\\x1b[31mx"), "{text}");
        }
    }
}

#[test]
fn a_filter_keeps_rows_with_all_its_words() {
    let picture = picture_of(bytes(&service()));
    let mut view = ViewState::default();
    press(&mut view, &picture, &typed("/WEB futex"));
    press(&mut view, &picture, &[Key::Enter]);
    let filtered = text(&view, &picture, SMALL);
    let rows = rows_below(&filtered, "worst waits");
    assert!(!rows.is_empty() && rows.iter().all(|row| row.contains("web 7")), "{filtered}");
    assert!(rows.iter().all(|row| row.contains("futex")), "{filtered}");
    // The ledger above them is the whole target's all the same.
    let bar = |text: &str| text.lines().find(|line| line.starts_with('█')).map(str::to_owned);
    assert_eq!(bar(&filtered), bar(&text(&ViewState::default(), &picture, SMALL)));
    // Escape gives the filter up, and then the whole view.
    press(&mut view, &picture, &[Key::Escape]);
    assert_eq!(text(&view, &picture, SMALL), text(&ViewState::default(), &picture, SMALL));
    assert_eq!(view.handle_key(Key::Escape, Some(&picture)), KeyAction::Quit);
}

#[test]
fn a_filter_that_is_given_up_leaves_the_one_before() {
    let picture = picture_of(bytes(&service()));
    let mut view = ViewState::default();
    press(&mut view, &picture, &typed("/web"));
    press(&mut view, &picture, &[Key::Enter]);
    let before = text(&view, &picture, SMALL);
    press(&mut view, &picture, &typed("/q"));
    press(&mut view, &picture, &[Key::Backspace, Key::Char('z'), Key::Escape]);
    assert_eq!(text(&view, &picture, SMALL), before);
}

#[test]
fn tables_are_sorted_by_what_is_asked_for() {
    let picture = replayed("demo");
    let mut view = ViewState::default();
    let times = |view: &ViewState| -> Vec<Nanos> {
        let text = text(view, &picture, LARGE);
        rows_below(&text, "worst waits").iter().filter_map(|row| nanos(row)).collect()
    };
    // By time without idle, then by time.
    press(&mut view, &picture, &[Key::Char('o')]);
    let falling = times(&view);
    assert!(falling.len() > 3 && falling.is_sorted_by(|a, b| a >= b), "{falling:?}");
    press(&mut view, &picture, &[Key::Char('r')]);
    let rising = times(&view);
    assert!(rising.is_sorted() && rising != falling, "{rising:?}");
}

/// The time at a row's beginning.
fn nanos(row: &str) -> Option<Nanos> {
    let mut words = row.split_whitespace();
    let number: f64 = words.next()?.parse().ok()?;
    let scale = match words.next()? {
        "s" => 1e9,
        "ms" => 1e6,
        "us" => 1e3,
        "ns" => 1.0,
        _ => return None,
    };
    Some(Nanos((number * scale) as u64))
}

#[test]
fn a_selected_row_is_followed_where_it_goes() {
    let picture = picture_of(bytes(&service()));
    let mut view = ViewState::default();
    press(&mut view, &picture, &[Key::Down]);
    let second = text(&ViewState::default(), &picture, SMALL);
    let second = rows_below(&second, "worst waits")[1].to_owned();
    // Sorted the other way round it is elsewhere; Enter goes into it all the same.
    press(&mut view, &picture, &[Key::Char('r'), Key::Enter]);
    let chain = text(&view, &picture, SMALL);
    let title = chain.lines().find(|line| line.contains(" waited ")).unwrap();
    let thread: Vec<&str> = title.split_whitespace().take(2).collect();
    assert!(second.contains(&thread.join(" ")), "{second}\n{title}");
}

#[test]
fn whoever_is_descended_into_shows_every_hop_with_its_stack() {
    let picture = picture_of(bytes(&service()));
    let mut view = ViewState::default();
    press(&mut view, &picture, &typed("/futex"));
    press(&mut view, &picture, &[Key::Enter, Key::Enter]);
    let chain = text(&view, &picture, LARGE);
    for wanted in ["<- worker 8", "finish;job", "Mutex::lock", "work of worker 8"] {
        assert!(chain.contains(wanted), "{wanted}: {chain}");
    }
    press(&mut view, &picture, &[Key::Down, Key::Escape]);
    assert_eq!(view.handle_key(Key::Char('q'), Some(&picture)), KeyAction::Quit);
}

#[test]
fn enter_on_two_threads_shows_the_waits_of_the_one_for_the_other() {
    let picture = picture_of(bytes(&service()));
    let mut view = ViewState::default();
    press(&mut view, &picture, &[Key::Tab, Key::Enter]);
    let text = text(&view, &picture, SMALL);
    let rows = rows_below(&text, "worst waits");
    assert!(text.contains("filter: worker 8 disk"), "{text}");
    assert!(rows.len() == 1 && rows[0].contains("worker 8             disk"), "{text}");
}

#[test]
fn keys_have_their_deeds() {
    let picture = picture_of(bytes(&service()));
    for (key, deed) in [
        (Key::Char('q'), KeyAction::Quit),
        (Key::Escape, KeyAction::Quit),
        (Key::Interrupt, KeyAction::Quit),
        (Key::Char('s'), KeyAction::Save),
        (Key::Char('x'), KeyAction::Nothing),
    ] {
        assert_eq!(ViewState::default().handle_key(key, Some(&picture)), deed, "{key:?}");
        assert_eq!(ViewState::default().handle_key(key, None), deed, "{key:?}, no picture yet");
    }
    let mut view = ViewState::default();
    press(&mut view, &picture, &[Key::Char('p')]);
    assert!(!view.is_live());
    press(&mut view, &picture, &[Key::Char(' '), Key::Char('w')]);
    assert!(view.is_live());
    assert_eq!((view.period(), view.wanted().since), (Period::Totals, Since::Start));
    // While a filter is written, keys are letters; Ctrl-C is none.
    press(&mut view, &picture, &typed("/qsp"));
    assert_eq!(view.handle_key(Key::Interrupt, Some(&picture)), KeyAction::Quit);
}

/// They cost a walk each: they are looked for while somebody looks at them.
#[test]
fn requests_have_a_screen_of_their_own() {
    let picture = picture_of(bytes(&asks(100, |n| n % 10 == 9)));
    let mut view = ViewState::default();
    assert_eq!(view.wanted().requests, RequestSearch::Skip);
    press(&mut view, &picture, &[Key::Char('R')]);
    assert_eq!(view.wanted().requests, RequestSearch::Find);
    let shown = text(&view, &picture, SMALL);
    assert!(shown.contains("\nrequests of ") && shown.contains("the slow ones (p"), "{shown}");
    // Nothing is cut off at the edge of a narrow screen that goes on below.
    let narrow = text(&view, &picture, (60, 40));
    assert!(narrow.contains("more than the fast\n") || narrow.contains("fast half:"), "{narrow}");
    // However far one scrolls, the last line stays.
    press(&mut view, &picture, &[Key::End]);
    assert!(text(&view, &picture, (200, 60)).contains("meanwhile are missing"));
    press(&mut view, &picture, &[Key::Escape]);
    assert_eq!(view.wanted().requests, RequestSearch::Skip);
    assert!(text(&view, &picture, SMALL).contains("worst waits"));
    // Until there are any, the screen says so.
    let without = TopData { requests: None, ..picture };
    press(&mut view, &without, &[Key::Char('R')]);
    assert!(text(&view, &without, SMALL).contains("the next picture has the requests"));
    press(&mut view, &without, &[Key::Char('p')]);
    assert!(text(&view, &without, SMALL).contains("paused"));
}

/// Any keys in any order: nothing panics, and what is drawn fits.
#[test]
fn no_order_of_keys_breaks_the_view() {
    let picture = picture_of(bytes(&service()));
    let keys = [
        Key::Up,
        Key::Down,
        Key::PageDown,
        Key::End,
        Key::Home,
        Key::Tab,
        Key::BackTab,
        Key::Enter,
        Key::Escape,
        Key::Backspace,
        Key::Left,
        Key::Right,
        Key::Char('o'),
        Key::Char('r'),
        Key::Char('/'),
        Key::Char('a'),
        Key::Char('t'),
        Key::Char('w'),
        Key::Char('i'),
        Key::Char('p'),
        Key::Char('?'),
        Key::Char('R'),
    ];
    let mut view = ViewState::default();
    // A walk that comes by every pair of keys.
    for (n, first) in keys.iter().enumerate() {
        for second in keys.iter().skip(n) {
            for key in [first, second] {
                view.handle_key(*key, Some(&picture));
                text(&view, &picture, (60, 15));
            }
        }
    }
}

#[test]
fn what_is_on_screen_is_what_the_report_says() {
    let bytes = bytes(&service());
    let picture = picture_of(bytes.clone());
    assert_eq!(&picture.bytes[..], bytes);
    let report = report(&stream::read(&picture.bytes[..], MEMORY).unwrap(), &Filter::default());
    assert_eq!(picture.window, Figures::from_report(&report));
    let blocked: Nanos = report.waits.iter().map(|wait| wait.blocked_ns).sum();
    let shown = picture.window.waits.iter().map(|(_, waited)| waited.blocked);
    assert_eq!(shown.sum::<Nanos>(), blocked);
    for (key, waited) in picture.window.waits.iter() {
        let leaves: Nanos = waited.chain_ends.iter().map(|(_, time)| time.0).sum();
        assert_eq!(leaves + waited.chain_ends.rest().0.0, waited.blocked, "{key:?}");
        let stacks: Nanos = waited.stacks.iter().map(|(_, time)| time.0).sum();
        assert_eq!(stacks, waited.blocked, "{key:?}");
    }
    assert!(picture.window.waits.iter().any(|(_, waited)| {
        waited.stacks.iter().any(|(stack, _): (&Frames, _)| !stack.names().is_empty())
    }));
}

#[test]
fn the_profilers_own_processes_are_in_no_row() {
    let ranked = |name: &str| {
        let mut recording = service();
        recording.meta.profiler = Some(Tgid(99));
        for event in &mut recording.thread_events {
            (event.parent, event.comm) = (Tgid(99), name.to_owned());
        }
        let TopData { header, window, .. } = picture_of(bytes(&recording));
        (header.findings.count(), window.processes.iter().count(), window.waits.iter().count())
    };
    assert_eq!(ranked("offwake-parser"), (0, 0, 0));
    // A command that is profiled is a child of the profiler as well.
    let (findings, processes, waits) = ranked("make");
    assert!(findings > 0 && processes > 0 && waits > 0);
}
