//! `cargo xtask`: builds, runs and tests offwake. What CI runs is what you run.

mod bench;
mod bless;
mod cargo_tool;
mod dependencies;
mod disk_space;
mod fuzz;
mod glossary;
mod incidents;
mod instructions;
mod links;
mod msrv;
mod package;
mod privileged_tests;
mod release;
mod run;
mod seeds;
mod test;
mod vm;

use std::{ffi::OsString, process::ExitCode};

use clap::{Parser, Subcommand};
use xtask::build;

/// Builds, runs and tests offwake.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Build both halves, fetching a toolchain for BPF if there is none
    Build,
    /// Build, then run `offwake demo`; with arguments, pass them to offwake instead
    Run {
        /// What offwake gets
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
    /// Formatting, lints, documentation, unit tests, and the privileged tests on this very kernel
    Test,
    /// Boot other kernels in an emulator, and run offwake and its tests on each
    Vm {
        /// Kernels, as in 6.12; without any, those that are tested always
        releases: Vec<vm::Release>,
        /// CPUs of the guests, as in 1, or 2/240: two, with room for 240. With others than two, the tests
        /// of CPUs alone are run
        #[arg(long, value_delimiter = ',')]
        cpus: Vec<vm::Cpus>,
        /// Debian's kernel for arm64 on an emulated machine of that kind, and no other
        #[arg(long, conflicts_with_all = ["releases", "cpus"])]
        arm64: bool,
    },
    /// Measure what offwake costs
    #[command(disable_help_flag = true)]
    Bench {
        /// The benchmark and its options
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
    /// Have offwake look at trouble with real software, whose cause is known
    #[command(disable_help_flag = true)]
    Incidents {
        /// Incidents and options; --help lists them
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
    /// Read made-up recordings, to see what they can break; what does is kept in fuzz/artifacts
    Fuzz {
        /// How long, in seconds
        #[arg(default_value_t = 600)]
        seconds: u32,
    },
    /// Run the property tests with other inputs than `test`, which always has the same
    Seeds {
        /// How many sets of inputs
        #[arg(default_value_t = 10)]
        count: u32,
        /// Run only tests whose names contain this
        filter: Option<String>,
    },
    /// Make an archive, a .deb and an .rpm of offwake, in target/package
    Package {
        /// Install and use each on bare systems of Debian 12 and 13 (needs root and debootstrap)
        #[arg(long)]
        test: bool,
    },
    /// Check that everything is ready for a release of this commit's tag, and make its files
    Release {
        /// Say what is not ready instead of refusing, and do not try the packages on bare systems
        #[arg(long)]
        dry_run: bool,
    },
    /// Take what the golden tests and the programs are now as what they shall be
    Bless,
}

fn main() -> ExitCode {
    let done = match Arguments::parse().task {
        Task::Build => build::build().map(|()| ExitCode::SUCCESS),
        Task::Run { arguments } if arguments.is_empty() => run::run_demo(),
        Task::Run { arguments } => run::run_offwake(&arguments),
        Task::Test => test::test().map(|()| ExitCode::SUCCESS),
        Task::Vm { arm64: true, .. } => vm::test_arm64().map(|()| ExitCode::SUCCESS),
        Task::Vm { releases, cpus, arm64: false } => {
            vm::test_releases(&releases, &cpus).map(|()| ExitCode::SUCCESS)
        }
        Task::Bench { arguments } => bench::bench(&arguments),
        Task::Incidents { arguments } => incidents::run(&arguments),
        Task::Fuzz { seconds } => fuzz::fuzz(seconds).map(|()| ExitCode::SUCCESS),
        Task::Seeds { count, filter } => {
            seeds::search(count, filter.as_deref()).map(|()| ExitCode::SUCCESS)
        }
        Task::Package { test: true } => package::test_packages().map(|_packages| ExitCode::SUCCESS),
        Task::Package { test: false } => {
            package::build_packages().map(|_packages| ExitCode::SUCCESS)
        }
        Task::Release { dry_run: true } => release::rehearse().map(|()| ExitCode::SUCCESS),
        Task::Release { dry_run: false } => release::release().map(|()| ExitCode::SUCCESS),
        Task::Bless => bless::bless().map(|()| ExitCode::SUCCESS),
    };
    done.unwrap_or_else(|error| {
        eprintln!("xtask: {error:#}");
        ExitCode::FAILURE
    })
}
