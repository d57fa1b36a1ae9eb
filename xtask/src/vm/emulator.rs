//! A machine that is emulated, instruction by instruction: slow, but it runs anywhere and as anybody.

use std::{
    error::Error,
    ffi::OsStr,
    fmt,
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};

use super::{archive::Architecture, cpus::Cpus, kernel::Kernel, transcript::Transcript};
use xtask::{apt, command};

const MEBIBYTES: &str = "2000";

/// How often the guest's words are looked at.
const INTERVAL: Duration = Duration::from_millis(200);

/// A guest that says nothing for so long, beyond what a task may take, hangs.
const SILENCE: Duration = Duration::from_secs(60);

// Files of a guest, in its folder.
const GUEST_OUTPUT: &str = "said.txt";
const CONSOLE: &str = "console.txt";
const COMPLAINTS: &str = "emulator.txt";

const KERNEL_ARGUMENTS: &str = "quiet panic=-1";

impl Architecture {
    /// Debian's name for its emulator.
    fn emulator_package(self) -> &'static str {
        match self {
            Self::Amd64 => "qemu-system-x86",
            Self::Arm64 => "qemu-system-arm",
        }
    }

    fn emulator_name(self) -> &'static str {
        match self {
            Self::Amd64 => "qemu-system-x86_64",
            Self::Arm64 => "qemu-system-aarch64",
        }
    }
}

/// The emulator of a kind of machine.
pub struct EmulatorProgram {
    architecture: Architecture,
    place: Place,
}

/// Where it is.
enum Place {
    /// The emulator is installed on this machine.
    Installed,
    /// The emulator was unpacked in a folder, with the libraries that this machine lacks.
    Unpacked(PathBuf),
}

impl EmulatorProgram {
    /// Finds it, or unpacks it. It is not installed: Debian's is at odds with newer ones of QEMU's other
    /// programs, which apt would remove for it.
    ///
    /// # Errors
    ///
    /// When it can't be had.
    pub fn find_or_install(architecture: Architecture, folder: &Path) -> anyhow::Result<Self> {
        if command::find_program(architecture.emulator_name()).is_some() {
            return Ok(Self { architecture, place: Place::Installed });
        }
        let root = folder.join(match architecture {
            Architecture::Amd64 => "emulator",
            Architecture::Arm64 => "emulator-arm64",
        });
        if !root.try_exists()? {
            apt::unpack(architecture.emulator_package(), &root)?;
        }
        Ok(Self { architecture, place: Place::Unpacked(root) })
    }

    fn command(&self) -> Command {
        let name = self.architecture.emulator_name();
        let Place::Unpacked(root) = &self.place else { return Command::new(name) };
        let usr = root.join("usr");
        // Some packages still put theirs where they were before `/lib` became `/usr/lib`.
        let libraries = [&usr, root].map(|above| above.join("lib").join("x86_64-linux-gnu"));
        let libraries = libraries.map(PathBuf::into_os_string).join(OsStr::new(":"));
        let mut command = Command::new(usr.join("bin").join(name));
        command.env("LD_LIBRARY_PATH", libraries);
        // Firmware that this machine has already was not unpacked.
        for share in [&usr.join("share"), Path::new("/usr/share")] {
            for firmware in ["qemu", "seabios"] {
                command.arg("-L").arg(share.join(firmware));
            }
        }
        command
    }
}

/// The emulator ended before the guest said anything. Nothing that is tested has been run.
#[derive(Debug)]
pub struct EndedBeforeBoot {
    status: ExitStatus,
    /// What it said last.
    why: String,
}

impl fmt::Display for EndedBeforeBoot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { status, why } = self;
        write!(f, "the emulator ended before the guest had booted ({status}): {why:?}")
    }
}

impl Error for EndedBeforeBoot {}

/// What a guest is made of.
pub struct Guest<'a> {
    pub emulator: &'a EmulatorProgram,
    pub kernel: &'a Kernel,
    pub cpus: Cpus,
    /// The initramfs, which holds the guest's root.
    pub image: &'a Path,
    /// The name of the disk's file in `folder`.
    pub disk: &'a str,
    /// The longest that any of its tasks may take.
    pub longest_task: Duration,
    /// Where what it says is written.
    pub folder: &'a Path,
}

impl Guest<'_> {
    /// Boots it and waits until it is over.
    ///
    /// # Errors
    ///
    /// When the emulator fails, or the guest hangs or dies: with where that was.
    pub fn run(&self) -> anyhow::Result<Transcript> {
        let [said, console, complaints] =
            [GUEST_OUTPUT, CONSOLE, COMPLAINTS].map(|name| self.folder.join(name));
        // What a guest said before would be taken for this one's words until it has found its own.
        remove_files(&[&said, &console])?;
        let mut emulator = Emulator::start(self.command(), &complaints)
            .with_context(|| self.emulator.architecture.emulator_name().to_owned())?;
        let mut heard = (0, Instant::now());
        loop {
            let ended = emulator.0.try_wait().context("cannot wait for the emulator")?;
            let text = fs::read(&said).unwrap_or_default();
            let transcript = Transcript::read(&String::from_utf8_lossy(&text));
            if transcript.is_over {
                return Ok(transcript);
            }
            let at = transcript.current.as_deref().unwrap_or("no task");
            if let Some(status) = ended {
                if last_words(&console).is_empty() && text.is_empty() {
                    let why = last_words(&complaints);
                    return Err(anyhow::Error::new(EndedBeforeBoot { status, why }));
                }
                bail!(
                    "the guest died at {at} ({status}); its last words: {}; the emulator's: {}; see {} and {}",
                    last_words(&console),
                    last_words(&complaints),
                    console.display(),
                    complaints.display()
                );
            }
            if text.len() > heard.0 {
                heard = (text.len(), Instant::now());
            }
            let silence = heard.1.elapsed();
            if silence > SILENCE + self.longest_task {
                bail!(
                    "the guest hangs at {at}: it has said nothing for {} s; its last words: {}; see {}",
                    silence.as_secs(),
                    last_words(&console),
                    console.display()
                );
            }
            thread::sleep(INTERVAL);
        }
    }

    fn command(&self) -> Command {
        let file = |name: &str| format!("file:{name}");
        let mut command = self.emulator.command();
        command
            // Its options end at a comma, which a path may hold.
            .current_dir(self.folder)
            // With hardware's help a machine within a machine may hang, and needs rights of its own. With
            // a thread for each CPU, one may meet a breakpoint that another has taken back from the
            // kernel's code already, as each attached program has it rewritten: seen to panic.
            .args(["-accel", "tcg,thread=single", "-m", MEBIBYTES])
            .args(["-smp", &self.cpus.argument()])
            .args(["-nodefaults", "-display", "none", "-no-reboot"])
            // What a guest syncs need not be on this machine's disk, which may be busy.
            .args([
                "-drive",
                &format!("file={},if=none,id=disk,format=raw,cache=unsafe", self.disk),
            ])
            .args(["-device", "nvme,drive=disk,serial=offwake"])
            .arg("-kernel")
            .arg(&self.kernel.image)
            .arg("-initrd")
            .arg(self.image)
            .args(["-serial", &file(CONSOLE)]);
        match self.emulator.architecture {
            // The guest sees this machine's counter. Left alone it distrusts it, or gets its rate wrong
            // where the emulator is kept waiting: its seconds would be others than ours.
            Architecture::Amd64 => {
                let clock = format!("tsc=reliable tsc_early_khz={}", counter_khz());
                command
                    .args(["-cpu", "max"])
                    .args(["-append", &format!("console=ttyS0 {KERNEL_ARGUMENTS} {clock}")])
                    .args(["-serial", &file(GUEST_OUTPUT)]);
            }
            // To sign return addresses takes the emulator most of its time. The machine has one serial line
            // of its own; what the kernel does not know it hands to the first process as a variable.
            Architecture::Arm64 => {
                command
                    .args(["-machine", "virt", "-cpu", "max,pauth=off"])
                    .args(["-append", &format!("console=ttyAMA0 {KERNEL_ARGUMENTS} said=ttyS0")])
                    .args(["-chardev", &format!("file,id=said,path={GUEST_OUTPUT}")])
                    .args(["-device", "pci-serial,chardev=said"]);
            }
        }
        command
    }
}

/// Removes what is left of an earlier run.
fn remove_files(files: &[&Path]) -> anyhow::Result<()> {
    for file in files {
        match fs::remove_file(file) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(error).with_context(|| format!("cannot remove {}", file.display()));
            }
            Ok(()) | Err(_) => {}
        }
    }
    Ok(())
}

/// How fast this machine's counter of cycles counts. Each time the process may be kept waiting between
/// the two clocks, so the middle one of several results is taken.
#[cfg(target_arch = "x86_64")]
fn counter_khz() -> u64 {
    let read = || {
        // SAFETY: every x86-64 CPU has the instruction, which reads a counter and nothing else.
        let cycles = unsafe { std::arch::x86_64::_rdtsc() };
        (cycles, Instant::now())
    };
    let mut results: Vec<u64> = (0..15)
        .map(|_| {
            let (cycles, begin) = read();
            thread::sleep(Duration::from_millis(20));
            let (later, end) = read();
            let microseconds = (end - begin).as_micros().max(1);
            let khz = u128::from(later.saturating_sub(cycles)) * 1000 / microseconds;
            u64::try_from(khz).unwrap_or(u64::MAX)
        })
        .collect();
    results.sort_unstable();
    results[results.len() / 2]
}

/// There is none that a guest would see.
#[cfg(not(target_arch = "x86_64"))]
fn counter_khz() -> u64 {
    0
}

/// The emulator; it ends when this is dropped.
struct Emulator(Child);

impl Emulator {
    fn start(mut command: Command, complaints: &Path) -> anyhow::Result<Self> {
        command::print(&command);
        let complaints = File::create(complaints)
            .with_context(|| format!("cannot create {}", complaints.display()))?;
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(complaints);
        let child = command.spawn().context("cannot run the emulator")?;
        Ok(Self(child))
    }
}

impl Drop for Emulator {
    fn drop(&mut self) {
        // Errors mean that it has ended already.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// The last line of a file that is not empty; nothing if there is none.
fn last_words(file: &Path) -> String {
    let text = fs::read(file).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let line = text.lines().rev().map(str::trim).find(|line| !line.is_empty());
    line.unwrap_or_default().chars().filter(|c| !c.is_control()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_words_are_those_of_the_last_line() -> anyhow::Result<()> {
        let folder = tempfile::tempdir()?;
        let file = folder.path().join(COMPLAINTS);
        anyhow::ensure!(last_words(&file).is_empty());
        fs::write(&file, "a warning\nqemu: could not load PC BIOS\n\n")?;
        anyhow::ensure!(last_words(&file) == "qemu: could not load PC BIOS");
        Ok(())
    }

    #[test]
    fn what_another_guest_said_before_is_forgotten() -> anyhow::Result<()> {
        let folder = tempfile::tempdir()?;
        let said = folder.path().join(GUEST_OUTPUT);
        fs::write(&said, "over\n")?;
        remove_files(&[&said, &folder.path().join(CONSOLE)])?;
        anyhow::ensure!(!said.exists());
        Ok(())
    }
}
