use std::{fs, path::Path};

use offwake_recording::{DeviceKind, InterruptInfo};

use super::describe_in;

/// A `/sys` with these files.
fn sysfs(files: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    for (name, text) in files {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("its folder");
        fs::write(path, format!("{text}\n")).expect("a file");
    }
    folder
}

fn kind(files: &[(&str, &str)], number: u16) -> Option<DeviceKind> {
    describe_in(sysfs(files).path(), number).device
}

#[test]
fn a_message_is_of_the_device_that_sends_it() {
    let files = [
        ("kernel/irq/45/actions", "nvme0q1"),
        ("bus/pci/devices/0000:00:02.0/class", "0x020000"),
        ("bus/pci/devices/0000:00:02.0/msi_irqs/44", "msix"),
        ("bus/pci/devices/0000:00:03.0/class", "0x010802"),
        ("bus/pci/devices/0000:00:03.0/msi_irqs/45", "msix"),
        ("bus/pci/devices/0000:00:04.0/class", "0x0c0400"),
        ("bus/pci/devices/0000:00:04.0/msi_irqs/46", "msi"),
        ("bus/pci/devices/0000:00:05.0/class", "0x0c0330"),
        ("bus/pci/devices/0000:00:05.0/msi_irqs/47", "msi"),
        ("bus/pci/devices/0000:00:06.0/msi_irqs/48", "msi"),
    ];
    let sysfs = sysfs(&files);
    assert_eq!(
        describe_in(sysfs.path(), 45),
        InterruptInfo {
            number: 45,
            device: Some(DeviceKind::Storage),
            handlers: "nvme0q1".to_owned()
        }
    );
    let kind = |number| describe_in(sysfs.path(), number).device;
    assert_eq!(kind(44), Some(DeviceKind::Other));
    assert_eq!(kind(46), Some(DeviceKind::Storage));
    assert_eq!(kind(47), Some(DeviceKind::Other));
    assert_eq!(kind(48), None, "its class is not known");
    assert_eq!(kind(49), None, "it is nobody's");
}

const DISK: &str = "bus/pci/devices/0000:00:03.0";
const OTHER: &str = "bus/pci/devices/0000:00:04.0";

/// A line with a disk controller on it, and its handlers.
fn line<'a>(names: &'a [String; 3], handlers: &'a str) -> Vec<(&'a str, &'a str)> {
    let [class, irq, driver] = names;
    vec![(class, "0x010601"), (irq, "11"), (driver, ""), ("kernel/irq/11/actions", handlers)]
}

fn device_files(device: &str) -> [String; 3] {
    ["class", "irq", "driver/name"].map(|file| format!("{device}/{file}"))
}

#[test]
fn a_line_is_of_a_kind_if_all_that_are_on_it_are() {
    let (disk, other) = (device_files(DISK), device_files(OTHER));
    let alone = line(&disk, "ahci");
    assert_eq!(kind(&alone, 11), Some(DeviceKind::Storage));
    // Another one pulls it that is on no PCI bus.
    assert_eq!(kind(&line(&disk, "ahci,acpi"), 11), None);
    assert_eq!(kind(&line(&disk, ""), 11), None);
    let [class, irq, driver] = &other;
    let shared = |of_class| {
        let mut files = line(&disk, "ahci,other");
        files.extend([(class.as_str(), of_class), (irq, "11"), (driver, "")]);
        files
    };
    assert_eq!(kind(&shared("0x010000"), 11), Some(DeviceKind::Storage));
    assert_eq!(kind(&shared("0x020000"), 11), None);
    // The disk sends messages, so that the line is the other's.
    let mut files = shared("0x020000");
    let messages = format!("{DISK}/msi_irqs/30");
    files.extend([(messages.as_str(), "msi"), ("kernel/irq/11/actions", "other")]);
    assert_eq!(kind(&files, 11), Some(DeviceKind::Other));
}

#[test]
fn a_device_that_no_driver_has_or_that_has_no_line_pulls_none() {
    let disk = device_files(DISK);
    let unbound: Vec<_> =
        line(&disk, "ahci").into_iter().filter(|(name, _)| !name.contains("driver")).collect();
    assert_eq!(kind(&unbound, 11), None);
    let [class, irq, driver] = &disk;
    let none =
        [(class.as_str(), "0x010601"), (irq, "0"), (driver, ""), ("kernel/irq/0/actions", "timer")];
    assert_eq!(kind(&none, 0), None);
}

#[test]
fn a_virtio_device_without_a_bus_is_known_by_its_handlers_name() {
    let virtio_kind = |actions: &'static str, id: &'static str| {
        kind(&[("kernel/irq/5/actions", actions), ("bus/virtio/devices/virtio1/device", id)], 5)
    };
    assert_eq!(virtio_kind("virtio1", "0x0002"), Some(DeviceKind::Storage));
    assert_eq!(virtio_kind("virtio1", "0x0001"), Some(DeviceKind::Other));
    assert_eq!(virtio_kind("virtio2", "0x0002"), None);
    assert_eq!(virtio_kind("virtio1,acpi", "0x0002"), None);
    assert_eq!(virtio_kind("../virtio1", "0x0002"), None);
}

#[test]
fn a_number_that_could_be_another_is_nobodys() {
    let message = format!("{DISK}/msi_irqs/45");
    let class = format!("{DISK}/class");
    let files = [(message.as_str(), "msi"), (class.as_str(), "0x010802")];
    assert_eq!(kind(&files, 45), Some(DeviceKind::Storage));
    let more = [files[0], files[1], ("kernel/irq/65581/actions", "eth0")];
    assert_eq!(kind(&more, 45), None);
}

#[test]
fn names_of_handlers_are_cut() {
    let many = "ahci,".repeat(200);
    let info = describe_in(sysfs(&[("kernel/irq/7/actions", &many)]).path(), 7);
    assert!(info.handlers.len() < 140, "{info:?}");
}

#[test]
fn nothing_is_known_without_sysfs() {
    let info = describe_in(Path::new("/does/not/exist"), 7);
    assert_eq!(info, InterruptInfo { number: 7, device: None, handlers: String::new() });
}

/// The machine's own: every disk of it that sends messages is found by each of them.
#[test]
fn the_disks_of_this_machine_are_found_by_their_interrupts() {
    let devices = fs::read_dir("/sys/bus/pci/devices").into_iter().flatten().flatten();
    for device in devices {
        let class = fs::read_to_string(device.path().join("class")).unwrap_or_default();
        let stores = class.starts_with("0x01") || class.starts_with("0x0c04");
        let messages = fs::read_dir(device.path().join("msi_irqs")).into_iter().flatten().flatten();
        for message in messages {
            let number = message.file_name().to_string_lossy().parse().expect("a number");
            let expected = if stores { DeviceKind::Storage } else { DeviceKind::Other };
            assert_eq!(
                super::describe_interrupt(number).device,
                Some(expected),
                "{:?}",
                device.path()
            );
        }
    }
}
