//! Each package, installed and used on a bare system that has nothing else.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::Context as _;
use xtask::{apt, command, kernel_half, python, root::RootAccess, workspace};

use super::Packages;

const MIRROR: &str = "http://deb.debian.org/debian";

/// Mounts a system so that nothing changes it, and runs a script in it, on a network of its own with a
/// server of names and a collector. Mounts end with `unshare`, the servers with the script.
const ENTER: &str = r#"
system=$1 scratch=$2 package=$3 script=$4 collector=$5 sysroot=${6-} cargo_home=${7-} target=${8-}
ip link set lo up
mount -t tmpfs tmpfs "$scratch"
mkdir "$scratch/upper" "$scratch/work" "$scratch/root"
mount -t overlay overlay -o "lowerdir=$system,upperdir=$scratch/upper,workdir=$scratch/work" \
    "$scratch/root"
for shared in proc sys dev; do
    mount --rbind "/$shared" "$scratch/root/$shared"
done
if [ -n "$sysroot" ]; then
    mkdir "$scratch/root/rust" "$scratch/root/cargo" "$scratch/root/target"
    mount --bind -o ro "$sysroot" "$scratch/root/rust"
    mount --bind -o ro "$cargo_home" "$scratch/root/cargo"
    mount --bind "$target" "$scratch/root/target"
    export CARGO_HOME=/cargo CARGO_TARGET_DIR=/target
fi
cp "$package" "$scratch/root/tmp/package"
python3 "$collector" "$scratch/collected" &
trap "kill $!" EXIT
export PATH=/usr/bin:/bin:/usr/sbin:/sbin:/rust/bin
chroot "$scratch/root" /bin/sh -eu -c "$script"
case $script in *collector.test*) grep -q resourceSpans "$scratch/collected" ;; esac
"#;

/// What somebody does with what is installed: the first finding, a page, and a report without root.
const USE: &str = r#"
offwake --version
offwake demo -d 3s -o /tmp/wait.html > /tmp/demo.txt
head -n 4 /tmp/demo.txt
grep -q 'in offwake::demo::worker::' /tmp/demo.txt
test -s /tmp/wait.html
offwake record -d 1s -o /tmp/x.offwake -- ls / > /dev/null
chmod 644 /tmp/x.offwake
setpriv --reuid=65534 --regid=65534 --clear-groups offwake report /tmp/x.offwake > /tmp/report.txt
test -s /tmp/report.txt
zcat /usr/share/man/man1/offwake-profile.1.gz | grep -q '^.SH SYNOPSIS'
bash -c '. /usr/share/bash-completion/completions/offwake && complete -p offwake' > /dev/null
grep -q '^ExecStart=/usr/bin/offwake' /usr/lib/systemd/system/offwake.service
grep -q '^aya [0-9]' /usr/share/doc/offwake/THIRD-PARTY-NOTICES
"#;

/// Removing the package leaves no file of it. The folder of its documents stays if rpm removes it.
const CHECK_REMOVED: &str = r#"
test -z "$(find / -xdev -not -type d -name '*offwake*' -not -path '/tmp/*' -not -path '/var/lib/dpkg/*')"
"#;

/// What the static program can do by itself, where the system names a service of names that is not there:
/// it finds the caller, with all groups, and a collector by DNS.
const LOOK_UP: &str = r#"
echo 'caller:x:1234:1234::/tmp:/bin/sh' >> /etc/passwd
echo 'first:x:1234:' >> /etc/group
echo 'second:x:5678:caller' >> /etc/group
printf 'passwd: sss\ngroup: sss\nhosts: sss\n' > /etc/nsswitch.conf
SUDO_UID=1234 SUDO_GID=1234 offwake record -d 1s -o /tmp/ids.offwake -- id -G > /tmp/ids.txt
cat /tmp/ids.txt
grep -qx '1234 5678' /tmp/ids.txt
echo 'nameserver 127.0.0.1' > /etc/resolv.conf
offwake report /tmp/wait.offwake --otlp http://collector.test:4318 > /dev/null
"#;

/// What is used where nothing else than busybox is.
const USE_BARELY: &str = r#"
offwake --version
offwake demo -d 3s -o /tmp/wait.html -o /tmp/wait.offwake > /tmp/demo.txt
grep -q 'in offwake::demo::worker::' /tmp/demo.txt
test -s /tmp/wait.html
"#;

/// How cargo installs from the source: without a registry that it could ask, with what this machine has of
/// other crates. Debug builds take a third of the time.
const INSTALL_SOURCE: &str = r#"
export CARGO_INCREMENTAL=0
mkdir /tmp/source
tar -C /tmp/source --touch -xf /tmp/package
for setting in dev.opt-level=0 dev.debug=false dev.package.offwake-analysis.opt-level=0 \
    dev.package.offwake-recording.opt-level=0 dev.package.zstd-sys.opt-level=1; do
    settings="${settings-} --config profile.$setting"
done
cd /tmp/source/offwake-*
install_source() {
    cargo install --quiet --debug --force --locked --offline --root /usr $settings --path profiler
}
install_source
"#;

/// The programs of other source are refused, with words on what to do.
const REFUSE_OTHERS: &str = r#"
echo '// Something else.' >> profiler-ebpf/src/lib.rs
if install_source 2> /tmp/refused.txt; then
    exit 1
fi
grep 'were not compiled from this source' /tmp/refused.txt
"#;

/// A package on a system, with the shell commands that install, use and remove it.
struct Trial<'p> {
    system: System,
    package: &'p Path,
    script: String,
}

/// A system that has next to nothing.
#[derive(Clone, Copy, Debug)]
enum System {
    /// A release of Debian.
    Debian(&'static str),
    /// Debian 12 with a C compiler, and the Rust of this machine.
    Compilers,
    /// Nothing but busybox, linked statically: no C library.
    Busybox,
}

/// Tries all packages.
///
/// # Errors
///
/// When one can't be installed, or what it installs does not work.
pub fn try_all(packages: &Packages) -> anyhow::Result<()> {
    let Packages { archive, deb, rpm, source, .. } = packages;
    let needed = ["busybox-static", "debootstrap", "iproute2"];
    apt::install(&needed.map(str::to_owned))?;
    python::install_debians()?;
    let installed = |system, package, install: &str, remove: &str| {
        let script = ["set -x", install, "set +x", USE, remove, CHECK_REMOVED].join("\n");
        Trial { system, package, script }
    };
    let debian =
        |suite| installed(System::Debian(suite), deb, "dpkg -i /tmp/package", "dpkg -r offwake");
    let unpack = "tar -C / -xzf /tmp/package";
    let trials = [
        debian("bookworm"),
        installed(
            System::Debian("bookworm"),
            archive,
            unpack,
            "tar -tf /tmp/package | grep -v '/$' | (cd / && xargs rm)",
        ),
        debian("trixie"),
        // rpm's database does not have what dpkg has installed.
        installed(System::Debian("trixie"), rpm, "rpm -i --nodeps /tmp/package", "rpm -e offwake"),
        Trial {
            system: System::Debian("trixie"),
            package: archive,
            script: [unpack, USE_BARELY, LOOK_UP].join("\n"),
        },
        Trial {
            system: System::Busybox,
            package: archive,
            script: [unpack, USE_BARELY, LOOK_UP].join("\n"),
        },
        Trial {
            system: System::Compilers,
            package: source,
            script: [INSTALL_SOURCE, USE_BARELY, REFUSE_OTHERS].join("\n"),
        },
    ];
    for trial in trials {
        let name = trial.package.file_name().unwrap_or_default().to_string_lossy();
        let system = trial.system;
        run_trial(&trial).with_context(|| format!("{name} does not work on {system:?}"))?;
        eprintln!("xtask: {name} works on {system:?}");
    }
    Ok(())
}

fn run_trial(trial: &Trial<'_>) -> anyhow::Result<()> {
    let Trial { system, package, script } = trial;
    let folder = match system {
        System::Debian(suite) => ensure_debian(suite, suite, "rpm")?,
        System::Compilers => ensure_debian("bookworm-cc", "bookworm", "gcc,libc6-dev")?,
        System::Busybox => make_busybox_system()?,
    };
    let scratch = tempfile::tempdir().context("cannot create a scratch directory")?;
    let mut enter = RootAccess::obtain_for("trying the packages")?.command("unshare");
    enter.args(["--mount", "--net", "sh", "-eu", "-c", ENTER, "sh"]).arg(folder);
    let collector = workspace::root().join("xtask/src/package/collector.py");
    enter.arg(scratch.path()).arg(package).arg(script).arg(collector);
    if let System::Compilers = system {
        enter.args(find_rust()?);
    }
    command::run_quietly(&mut enter)
}

/// Returns the folders that cargo and rustc need: the toolchain, the other crates, and where it compiles.
fn find_rust() -> anyhow::Result<[PathBuf; 3]> {
    let sysroot = command::output(Command::new("rustc").args(["--print", "sysroot"]));
    let target = workspace::target().join("installed");
    fs::create_dir_all(&target).with_context(|| format!("cannot create {}", target.display()))?;
    Ok([PathBuf::from(sysroot.context("there is no rustc")?), kernel_half::cargo_home()?, target])
}

/// Makes a system of busybox alone.
fn make_busybox_system() -> anyhow::Result<PathBuf> {
    let system = workspace::target().join("systems/busybox");
    let script = r#"
        mkdir -p "$1/bin" "$1/etc" "$1/tmp" "$1/proc" "$1/sys" "$1/dev" "$1/usr/bin"
        chmod 1777 "$1/tmp"
        cp /bin/busybox "$1/bin/"
        chroot "$1" /bin/busybox --install -s /bin
        echo 'root:x:0:0::/:/bin/sh' > "$1/etc/passwd"
        echo 'root:x:0:' > "$1/etc/group""#;
    let mut sh = RootAccess::obtain_for("making a bare system")?.command("sh");
    command::run_quietly(sh.args(["-eu", "-c", script, "sh"]).arg(&system))?;
    Ok(system)
}

/// Returns the folder of a bare system of a release of Debian, with these packages besides, and makes it if
/// it is not there.
fn ensure_debian(name: &str, suite: &str, packages: &str) -> anyhow::Result<PathBuf> {
    let systems = workspace::target().join("systems");
    let system = systems.join(name);
    if system.exists() {
        return Ok(system);
    }
    fs::create_dir_all(&systems).with_context(|| format!("cannot create {}", systems.display()))?;
    let part = systems.join(format!("{name}.part"));
    let root = RootAccess::obtain_for("making a bare system")?;
    // A system that was not finished.
    command::run_quietly(root.command("rm").arg("-rf").arg(&part))?;
    let mut debootstrap = root.command("debootstrap");
    debootstrap.arg("--variant=minbase").arg(format!("--include={packages}")).arg(suite);
    command::run(debootstrap.arg(&part).arg(MIRROR))?;
    command::run_quietly(root.command("mv").arg(&part).arg(&system))?;
    Ok(system)
}
