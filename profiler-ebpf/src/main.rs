//! The kernel half: thin entry points. It is compiled for BPF only.
#![cfg_attr(target_arch = "bpf", no_std, no_main)]

/// Lets a host build of the whole workspace pass.
#[cfg(not(target_arch = "bpf"))]
fn main() {}
