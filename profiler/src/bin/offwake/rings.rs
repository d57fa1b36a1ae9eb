//! How large rings are.

/// What a ring can be: a power of two, and a page at least.
pub fn bytes(wanted: usize) -> u32 {
    const PAGE: usize = 4096;
    const LARGEST: usize = 1 << 30;
    let bytes = wanted.clamp(PAGE, LARGEST).next_power_of_two();
    u32::try_from(bytes).unwrap_or(1 << 30)
}

/// Of each CPU's ring. 128 MiB are shared out over the CPUs: 8 MiB each hold a fifth of a second of the
/// fastest switching that was seen.
pub fn default_bytes() -> u32 {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    bytes(((128 << 20) / cpus).clamp(1 << 20, 8 << 20))
}
