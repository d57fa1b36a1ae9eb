//! Each package, installed and used on a bare system that has nothing else.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use xtask::{apt, command, root::RootAccess, workspace};

use super::Packages;

const MIRROR: &str = "http://deb.debian.org/debian";

/// Mounts a system so that nothing changes it, and runs a script in it. Mounts end with `unshare`.
const ENTER: &str = r#"
system=$1 scratch=$2 package=$3 script=$4
mount -t tmpfs tmpfs "$scratch"
mkdir "$scratch/upper" "$scratch/work" "$scratch/root"
mount -t overlay overlay -o "lowerdir=$system,upperdir=$scratch/upper,workdir=$scratch/work" \
    "$scratch/root"
for shared in proc sys dev; do
    mount --rbind "/$shared" "$scratch/root/$shared"
done
cp "$package" "$scratch/root/tmp/package"
exec chroot "$scratch/root" /bin/sh -eu -c "$script"
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
"#;

/// Removing the package leaves no file of it. The folder of its documents stays if rpm removes it.
const CHECK_REMOVED: &str = r#"
test -z "$(find / -xdev -not -type d -name '*offwake*' -not -path '/tmp/*' -not -path '/var/lib/dpkg/*')"
"#;

/// A package on a system, with the shell commands that install and remove it.
struct Trial<'p> {
    suite: &'static str,
    package: &'p Path,
    install: &'static str,
    remove: &'static str,
}

/// Tries all packages.
///
/// # Errors
///
/// When one can't be installed, or what it installs does not work.
pub fn try_all(packages: &Packages) -> anyhow::Result<()> {
    let debian = |suite| Trial {
        suite,
        package: &packages.deb,
        install: "dpkg -i /tmp/package",
        remove: "dpkg -r offwake",
    };
    let archive = Trial {
        suite: "bookworm",
        package: &packages.archive,
        install: "tar -C / -xf /tmp/package",
        remove: "tar -tf /tmp/package | grep -v '/$' | (cd / && xargs rm)",
    };
    let rpm = Trial {
        suite: "trixie",
        package: &packages.rpm,
        // rpm's database does not have what dpkg has installed.
        install: "rpm -i --nodeps /tmp/package",
        remove: "rpm -e offwake",
    };
    for trial in [debian("bookworm"), archive, debian("trixie"), rpm] {
        let name = trial.package.file_name().unwrap_or_default().to_string_lossy();
        run_trial(&trial).with_context(|| format!("{name} does not work on {}", trial.suite))?;
        eprintln!("xtask: {name} works on {}", trial.suite);
    }
    Ok(())
}

fn run_trial(trial: &Trial<'_>) -> anyhow::Result<()> {
    let Trial { suite, package, install, remove } = trial;
    let system = ensure_system(suite)?;
    let scratch = tempfile::tempdir().context("cannot create a scratch directory")?;
    let script = ["set -x", install, "set +x", USE, remove, CHECK_REMOVED].join("\n");
    let mut enter = RootAccess::obtain_for("trying the packages")?.command("unshare");
    enter.args(["--mount", "sh", "-eu", "-c", ENTER, "sh"]).arg(system);
    command::run_quietly(enter.arg(scratch.path()).arg(package).arg(script))
}

/// Returns the folder of a bare system of a release of Debian, and makes it if it is not there.
fn ensure_system(suite: &str) -> anyhow::Result<PathBuf> {
    let systems = workspace::target().join("systems");
    let system = systems.join(suite);
    if system.exists() {
        return Ok(system);
    }
    fs::create_dir_all(&systems).with_context(|| format!("cannot create {}", systems.display()))?;
    apt::install(&["debootstrap".to_owned()])?;
    let part = systems.join(format!("{suite}.part"));
    let root = RootAccess::obtain_for("making a bare system")?;
    // A system that was not finished.
    command::run_quietly(root.command("rm").arg("-rf").arg(&part))?;
    let mut debootstrap = root.command("debootstrap");
    debootstrap.args(["--variant=minbase", "--include=rpm", suite]).arg(&part).arg(MIRROR);
    command::run(&mut debootstrap)?;
    command::run_quietly(root.command("mv").arg(&part).arg(&system))?;
    Ok(system)
}
