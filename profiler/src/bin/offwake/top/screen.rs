//! The terminal: taken over as a whole, and given back whatever happens.

use std::{
    io::{self, IsTerminal as _, Stdout},
    sync::{
        Mutex, MutexGuard, OnceLock, PoisonError, TryLockError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use offwake::{
    own_threads::{self, DeathCost, OwnThread},
    top::{ColourMode, Key, ViewState, draw},
};
use offwake_analysis::top::TopData;
use ratatui::{
    Terminal,
    backend::CrosstermBackend,
    crossterm::{
        cursor,
        event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers},
        execute,
        terminal::{self, EnterAlternateScreen, LeaveAlternateScreen},
    },
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Whether the terminal is taken over, so that it is restored once.
static TAKEN: AtomicBool = AtomicBool::new(false);

/// Held while a picture is drawn or the terminal is restored, so that no picture is drawn over what comes behind
/// it.
static DRAWING: Mutex<()> = Mutex::new(());

/// The longest time that whoever restores the terminal waits for a picture: nobody may read it, or the thread
/// that draws may be the one that has panicked.
const PICTURE_TIMEOUT: Duration = Duration::from_millis(100);

/// The first thread that has panicked without which there is no view.
static FATAL: OnceLock<OwnThread> = OnceLock::new();

/// What threads said as they died whose death costs the view a part: it is printed when the terminal is
/// given back. There are no more than there are such threads.
static LAST_WORDS: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Something that came from the terminal.
pub enum Input {
    /// A key.
    Key(Key),
    /// The terminal has another size.
    Resized,
    /// Nothing will come any more.
    Gone,
}

/// The terminal, taken over.
pub struct Screen {
    terminal: Terminal<CrosstermBackend<Stdout>>,
    colours: ColourMode,
}

/// Whether there is a terminal that can be drawn on, and whether in colours.
pub fn check() -> anyhow::Result<ColourMode> {
    if !io::stdout().is_terminal() {
        bail!("top draws on a terminal, and standard output is none: use `offwake profile`");
    }
    if !io::stdin().is_terminal() {
        bail!("top takes keys from a terminal, and standard input is none: use `offwake profile`");
    }
    match std::env::var_os("TERM") {
        None => bail!("top needs to know its terminal, and TERM is not set: use `offwake profile`"),
        Some(term) if term.is_empty() || term == "dumb" => {
            bail!("top can't draw on a dumb terminal (TERM): use `offwake profile`")
        }
        Some(_) => {}
    }
    // https://no-color.org: any value but the empty one.
    let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    Ok(if no_color { ColourMode::Plain } else { ColourMode::Colours })
}

/// Restores the terminal. Any thread may call it, any number of times.
pub fn restore() {
    let _picture = wait_for_picture();
    if TAKEN.swap(false, Ordering::SeqCst) {
        // Nobody is left to tell if the terminal itself is gone.
        let _gone = terminal::disable_raw_mode();
        let _gone = execute!(io::stdout(), LeaveAlternateScreen, cursor::Show);
        for words in LAST_WORDS.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            eprintln!("{words}");
        }
    }
}

fn wait_for_picture() -> Option<MutexGuard<'static, ()>> {
    let until = Instant::now() + PICTURE_TIMEOUT;
    loop {
        match DRAWING.try_lock() {
            Ok(guard) => return Some(guard),
            Err(TryLockError::Poisoned(guard)) => return Some(guard.into_inner()),
            Err(TryLockError::WouldBlock) if Instant::now() >= until => return None,
            Err(TryLockError::WouldBlock) => thread::sleep(Duration::from_millis(1)),
        }
    }
}

/// From here on, a panic of a thread without which there is no view restores the terminal before anything is
/// printed, and ends the view. What any other thread says as it dies waits until the view is over. Called before
/// there are other threads, so that none dies unnoticed.
pub fn watch_panics() {
    let default_hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let thread = own_threads::current();
        if matches!(thread.death_cost(), DeathCost::Part(_)) {
            // Whoever restores the terminal prints them, and so has to wait until they are there.
            let mut last_words = LAST_WORDS.lock().unwrap_or_else(PoisonError::into_inner);
            if TAKEN.load(Ordering::SeqCst) {
                last_words.push(format!("thread '{}' {panic}", thread.name()));
            } else {
                drop(last_words);
                default_hook(panic);
            }
            return;
        }
        FATAL.get_or_init(|| thread);
        restore();
        default_hook(panic);
    }));
}

/// The thread whose panic has ended the view, if one has.
pub fn fatal_panic() -> Option<OwnThread> {
    FATAL.get().copied()
}

/// Whether somebody has restored the terminal while the screen was still open.
pub fn was_restored() -> bool {
    !TAKEN.load(Ordering::SeqCst)
}

impl Screen {
    /// Takes the terminal over.
    pub fn open(colours: ColourMode) -> anyhow::Result<Self> {
        let cannot = "cannot take the terminal over";
        terminal::enable_raw_mode().context(cannot)?;
        TAKEN.store(true, Ordering::SeqCst);
        // From here on it is restored.
        let taken = execute!(io::stdout(), EnterAlternateScreen);
        let terminal = taken.and_then(|()| Terminal::new(CrosstermBackend::new(io::stdout())));
        match terminal {
            Ok(terminal) => Ok(Self { terminal, colours }),
            Err(error) => {
                restore();
                Err(error).context(cannot)
            }
        }
    }

    /// Draws what is to be seen.
    pub fn draw(&mut self, view: &ViewState, data: Option<&TopData>) -> anyhow::Result<()> {
        let colours = self.colours;
        let _picture = DRAWING.lock().unwrap_or_else(PoisonError::into_inner);
        if was_restored() {
            return Ok(());
        }
        let drawn = self.terminal.draw(|frame| draw(frame, view, data, colours));
        drawn.map(drop).context("cannot draw on the terminal")
    }

    /// What comes from the terminal within this time, if it is anything that matters.
    pub fn input(&self, within: Duration) -> anyhow::Result<Option<Input>> {
        let cannot = "cannot read from the terminal";
        if wait_for_keys(within).context(cannot)? == Keyboard::Gone {
            return Ok(Some(Input::Gone));
        }
        if !event::poll(Duration::ZERO).context(cannot)? {
            return Ok(None);
        }
        Ok(match event::read().context(cannot)? {
            Event::Key(key) => self::key(key).map(Input::Key),
            Event::Resize(..) => Some(Input::Resized),
            _ => None,
        })
    }
}

/// Whether anybody can press a key.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Keyboard {
    There,
    Gone,
}

/// crossterm's own `poll` never comes back from a terminal that is gone: it reads its end over and
/// over (0.29, `event/source/unix/mio.rs`).
fn wait_for_keys(within: Duration) -> io::Result<Keyboard> {
    let stdin = io::stdin();
    let mut fds = [PollFd::new(&stdin, PollFlags::IN)];
    let within = Timespec::try_from(within).map_err(io::Error::other)?;
    match poll(&mut fds, Some(&within)) {
        // A signal: of another size, say.
        Ok(_) | Err(rustix::io::Errno::INTR) => {}
        Err(error) => return Err(error.into()),
    }
    let gone = PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL;
    Ok(if fds[0].revents().intersects(gone) { Keyboard::Gone } else { Keyboard::There })
}

impl Drop for Screen {
    fn drop(&mut self) {
        restore();
    }
}

fn key(event: KeyEvent) -> Option<Key> {
    if event.kind == KeyEventKind::Release {
        return None;
    }
    let has_control = event.modifiers.contains(KeyModifiers::CONTROL);
    Some(match event.code {
        KeyCode::Char('c') if has_control => Key::Interrupt,
        KeyCode::Char(_) if has_control || event.modifiers.contains(KeyModifiers::ALT) => {
            return None;
        }
        KeyCode::Char(c) => Key::Char(c),
        KeyCode::Up => Key::Up,
        KeyCode::Down => Key::Down,
        KeyCode::Left => Key::Left,
        KeyCode::Right => Key::Right,
        KeyCode::PageUp => Key::PageUp,
        KeyCode::PageDown => Key::PageDown,
        KeyCode::Home => Key::Home,
        KeyCode::End => Key::End,
        KeyCode::Enter => Key::Enter,
        KeyCode::Tab => Key::Tab,
        KeyCode::BackTab => Key::BackTab,
        KeyCode::Backspace => Key::Backspace,
        KeyCode::Esc => Key::Escape,
        _ => return None,
    })
}
