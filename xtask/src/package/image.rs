//! The image for container engines: the static program and its licences, in one layer.
//!
//! It is written in the form that `docker save` writes, so that no engine is needed to make it. The same
//! program gives the same image.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, bail};
use serde_json::json;
use sha2::{Digest as _, Sha256};
use xtask::command;

use super::{VERSION, folder, hex, pack, tar};

/// What goes into the layer.
const MEMBERS: [&str; 2] = ["usr/bin/offwake", "usr/share/doc/offwake"];

/// Writes the image of the static program, whose files are below `root`.
///
/// # Errors
///
/// When a file can't be made.
pub fn write(name: &str, root: &Path) -> anyhow::Result<PathBuf> {
    let parts = folder().join("image");
    let files = parts.join("files");
    for member in MEMBERS {
        let copy = files.join(member);
        let parent = copy.parent().context("a file without a folder")?;
        fs::create_dir_all(parent)
            .with_context(|| format!("cannot create {}", parent.display()))?;
        command::run(Command::new("cp").arg("-R").arg(root.join(member)).arg(&copy))?;
    }
    // The folders above them are in it too: Docker would make them so that only root can enter.
    let layer = parts.join("layer.tar");
    command::run(tar(&files).arg("-cf").arg(&layer).arg("usr"))?;
    let content = fs::read(&layer).with_context(|| format!("cannot read {}", layer.display()))?;
    let config = json!({
        "architecture": architecture()?,
        "os": "linux",
        "created": "1970-01-01T00:00:00Z",
        "config": {
            "Entrypoint": ["/usr/bin/offwake"],
            "Env": ["PATH=/usr/bin"],
            "Labels": {
                "org.opencontainers.image.title": "offwake",
                "org.opencontainers.image.version": VERSION,
                "org.opencontainers.image.licenses": env!("CARGO_PKG_LICENSE"),
            },
        },
        "rootfs": {
            "type": "layers",
            "diff_ids": [format!("sha256:{}", hex(&Sha256::digest(&content)))],
        },
        "history": [{ "created": "1970-01-01T00:00:00Z", "created_by": "cargo xtask package" }],
    });
    let config = serde_json::to_vec(&config)?;
    let config_name = format!("{}.json", hex(&Sha256::digest(&config)));
    let manifest = json!([{
        "Config": config_name,
        "RepoTags": [format!("offwake:{VERSION}")],
        "Layers": ["layer.tar"],
    }]);
    write_part(&parts.join(&config_name), &config)?;
    write_part(&parts.join("manifest.json"), &serde_json::to_vec(&manifest)?)?;
    pack(name, &parts, &["manifest.json", &config_name, "layer.tar"])
}

fn write_part(path: &Path, content: &[u8]) -> anyhow::Result<()> {
    fs::write(path, content).with_context(|| format!("cannot write {}", path.display()))
}

/// What images call this machine's architecture.
fn architecture() -> anyhow::Result<&'static str> {
    match std::env::consts::ARCH {
        "x86_64" => Ok("amd64"),
        "aarch64" => Ok("arm64"),
        other => bail!("no image for {other}"),
    }
}
