//! The device of an interrupt: looked up while it is there, by the number that a wake came with.
//!
//! ```text
//!  /sys/kernel/irq/N/actions                         --> its handlers
//!  /sys/bus/pci/devices/*/msi_irqs/N, else …/irq     --> the PCI device, and its class
//!  /sys/bus/virtio/devices/<a handler's name>/device --> a virtio device that is on no PCI bus
//! ```
//!
//! Where no device is found, or the devices on a shared line are of several kinds, no kind is
//! claimed.

#[cfg(test)]
mod tests;

use std::{
    fs,
    path::{Path, PathBuf},
};

use offwake_analysis::text;
use offwake_recording::{DeviceKind, InterruptInfo};

/// Bytes of the handlers' names that are kept.
const MAX_HANDLERS: usize = 128;

/// Finds the device and the handlers of an interrupt.
#[must_use]
pub fn describe_interrupt(number: u16) -> InterruptInfo {
    describe_in(Path::new("/sys"), number)
}

fn describe_in(sysfs: &Path, number: u16) -> InterruptInfo {
    let handlers = Handlers::read(sysfs, number);
    // A record has 16 bits of the number: another interrupt with the same low bits makes it
    // ambiguous.
    let is_ambiguous = sysfs.join(format!("kernel/irq/{}", u32::from(number) + (1 << 16))).exists();
    let device = if is_ambiguous { None } else { device_kind(sysfs, number, &handlers) };
    InterruptInfo { number, device, handlers: text::cut_bytes(&handlers.0, MAX_HANDLERS) }
}

fn device_kind(sysfs: &Path, number: u16, handlers: &Handlers) -> Option<DeviceKind> {
    let pci = PciDevice::all(sysfs);
    // A message-signalled interrupt is one device's alone.
    if let Some(device) = pci.iter().find(|device| device.has_message(number)) {
        return device.kind();
    }
    shared_line_kind(&pci, number, handlers).or_else(|| virtio_kind(sysfs, handlers))
}

/// The kind of the devices on a line that several may pull: all have to be of one kind, and none
/// may be missing.
fn shared_line_kind(pci: &[PciDevice], number: u16, handlers: &Handlers) -> Option<DeviceKind> {
    // A device that has no line has the number 0.
    if number == 0 {
        return None;
    }
    let on_it: Vec<_> = pci.iter().filter(|device| device.is_on_line(number)).collect();
    let kind = on_it.first()?.kind()?;
    let agree = on_it.iter().all(|device| device.kind() == Some(kind));
    (agree && (1..=on_it.len()).contains(&handlers.count())).then_some(kind)
}

/// A device on the PCI bus, by its folder.
struct PciDevice(PathBuf);

impl PciDevice {
    fn all(sysfs: &Path) -> Vec<Self> {
        let folder = fs::read_dir(sysfs.join("bus/pci/devices"));
        folder.into_iter().flatten().flatten().map(|entry| Self(entry.path())).collect()
    }

    /// Whether the device sends this number as a message
    /// ([`Documentation/ABI/testing/sysfs-bus-pci`](https://github.com/torvalds/linux/blob/v6.12/Documentation/ABI/testing/sysfs-bus-pci)).
    fn has_message(&self, number: u16) -> bool {
        self.0.join(format!("msi_irqs/{number}")).exists()
    }

    /// Whether a driver has it, and it has nothing but this line.
    fn is_on_line(&self, number: u16) -> bool {
        !self.0.join("msi_irqs").exists()
            && self.0.join("driver").exists()
            && read(&self.0.join("irq")) == number.to_string()
    }

    /// The kind of the device, by its class: base class, subclass, interface, a byte each
    /// ([`include/linux/pci_ids.h`](https://github.com/torvalds/linux/blob/v6.12/include/linux/pci_ids.h#L17)).
    fn kind(&self) -> Option<DeviceKind> {
        const STORAGE: u32 = 0x01;
        /// Adapters to which disks are attached over fibre.
        const FIBRE_CHANNEL: u32 = 0x0c04;
        let class = hexadecimal(&read(&self.0.join("class")))?;
        let stores = class >> 16 == STORAGE || class >> 8 == FIBRE_CHANNEL;
        Some(if stores { DeviceKind::Storage } else { DeviceKind::Other })
    }
}

/// The kind of a virtio device without a PCI bus, as small virtual machines have them: its handler
/// is called after it
/// ([`vm_find_vqs`](https://github.com/torvalds/linux/blob/v6.12/drivers/virtio/virtio_mmio.c#L478)).
fn virtio_kind(sysfs: &Path, handlers: &Handlers) -> Option<DeviceKind> {
    /// `VIRTIO_ID_BLOCK`, `_SCSI` and `_FS`
    /// ([`virtio_ids.h`](https://github.com/torvalds/linux/blob/v6.12/include/uapi/linux/virtio_ids.h)).
    const STORE: [u32; 3] = [2, 8, 26];
    let name = handlers.only()?;
    let is_name = name.strip_prefix("virtio")?.bytes().all(|byte| byte.is_ascii_digit());
    let device = sysfs.join("bus/virtio/devices").join(is_name.then_some(name)?).join("device");
    let id = hexadecimal(&read(&device))?;
    Some(if STORE.contains(&id) { DeviceKind::Storage } else { DeviceKind::Other })
}

/// The names of an interrupt's handlers, with commas.
struct Handlers(String);

impl Handlers {
    fn read(sysfs: &Path, number: u16) -> Self {
        Self(read(&sysfs.join(format!("kernel/irq/{number}/actions"))))
    }

    fn count(&self) -> usize {
        self.0.split(',').filter(|name| !name.is_empty()).count()
    }

    fn only(&self) -> Option<&str> {
        (self.count() == 1).then_some(self.0.as_str())
    }
}

fn read(file: &Path) -> String {
    fs::read_to_string(file).map(|text| text.trim().to_owned()).unwrap_or_default()
}

fn hexadecimal(text: &str) -> Option<u32> {
    u32::from_str_radix(text.strip_prefix("0x")?, 16).ok()
}
