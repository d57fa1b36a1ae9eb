//! Devices' interrupts by number.

use strum::{IntoStaticStr, VariantArray};

/// What the device is for that an interrupt comes from, as far as it says what such an interrupt ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum DeviceKind {
    /// It stores: a disk, or the controller that disks are on.
    Storage,
    /// Anything else.
    Other,
}

/// What was found out of an interrupt's number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterruptInfo {
    /// Its number, as in `/proc/interrupts`.
    pub number: u16,
    /// Whose it is; none if that can't be told.
    pub device: Option<DeviceKind>,
    /// What its handlers are called, as in `/proc/interrupts`: `nvme0q1`. Several, with commas, where
    /// devices share it; empty if they have no names.
    pub handlers: String,
}
