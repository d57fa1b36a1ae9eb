//! A headless Chromium, told by its own driver what to do: the few commands of
//! [WebDriver](https://www.w3.org/TR/webdriver2/) that the tests need, each one HTTP request.
//!
//! Whatever it starts ends with it, by its own id.

use std::{
    io::{BufRead, BufReader, Read as _},
    path::Path,
    process::{Child, ChildStdout, Command, Stdio},
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};
use tempfile::TempDir;
use ureq::Agent;

use crate::{paths, wait_until::wait_until};

/// Nothing asks for anything on the network, or keeps anything.
const ARGUMENTS: [&str; 8] = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
];

/// A page takes as long as its script.
const PATIENCE: Duration = Duration::from_secs(120);

/// Keys that are no characters
/// ([their code points](https://www.w3.org/TR/webdriver2/#keyboard-actions)).
pub mod key {
    #![expect(missing_docs, reason = "the names say it")]
    pub const TAB: char = '\u{e004}';
    pub const ENTER: char = '\u{e007}';
    pub const CTRL: char = '\u{e009}';
    pub const ESCAPE: char = '\u{e00c}';
    pub const LEFT: char = '\u{e012}';
    pub const UP: char = '\u{e013}';
    pub const RIGHT: char = '\u{e014}';
    pub const DOWN: char = '\u{e015}';
}

/// What the system prefers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// Dark letters on a light ground.
    Light,
    /// Light letters on a dark ground.
    Dark,
}

/// A browser with one window.
pub struct Browser {
    driver: Child,
    // The driver writes to it until it ends.
    output: BufReader<ChildStdout>,
    agent: Agent,
    session: String,
    profile: TempDir,
}

impl Browser {
    /// Starts one whose window is so many pixels wide and high.
    ///
    /// # Errors
    ///
    /// When Chromium or its driver is not installed, or does not start.
    pub fn start(width: u32, height: u32) -> Result<Self> {
        let mut driver = Command::new("chromedriver")
            .arg("--port=0")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .context("cannot start chromedriver: `cargo xtask test` installs it")?;
        let stdout = driver.stdout.take().context("chromedriver has no standard output")?;
        let mut browser = Self {
            driver,
            output: BufReader::new(stdout),
            agent: Agent::config_builder()
                .http_status_as_error(false)
                .timeout_global(Some(PATIENCE))
                .build()
                .into(),
            session: String::new(),
            profile: paths::scratch_directory()?,
        };
        let server = format!("http://127.0.0.1:{}", browser.port()?);
        let mut arguments = ARGUMENTS.map(str::to_owned).to_vec();
        arguments.push(format!("--window-size={width},{height}"));
        // Chromium writes its own port there, and takes no path with `..` in it.
        let profile = browser.profile.path().canonicalize()?;
        arguments.push(format!("--user-data-dir={}", profile.display()));
        let wanted = json!({ "capabilities": { "alwaysMatch": {
            "browserName": "chrome",
            "goog:chromeOptions": { "args": arguments },
            "goog:loggingPrefs": { "browser": "ALL", "performance": "ALL" },
        } } });
        let answer = browser.post(&format!("{server}/session"), &wanted)?;
        let id = answer["sessionId"].as_str().context("no session")?;
        browser.session = format!("{server}/session/{id}");
        Ok(browser)
    }

    /// The driver says which one it took.
    fn port(&mut self) -> Result<u16> {
        for line in self.output.by_ref().lines() {
            let line = line?;
            if let Some((_, port)) = line.split_once("started successfully on port ") {
                return port.trim_end_matches('.').parse().context("no port");
            }
        }
        bail!("chromedriver ended before it listened")
    }

    /// Opens a file, and waits until it is loaded.
    ///
    /// # Errors
    ///
    /// When it can't be opened.
    pub fn open(&self, page: &Path) -> Result<()> {
        self.command("url", &json!({ "url": format!("file://{}", page.display()) })).map(drop)
    }

    /// Makes pages as wide and high as that, whatever the window has around them.
    ///
    /// # Errors
    ///
    /// When the driver can't.
    pub fn resize_view(&self, width: u32, height: u32) -> Result<()> {
        let view =
            json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false });
        let command = json!({ "cmd": "Emulation.setDeviceMetricsOverride", "params": view });
        self.command("goog/cdp/execute", &command).map(drop)
    }

    /// What a script returns.
    ///
    /// # Errors
    ///
    /// When it throws.
    pub fn run(&self, script: &str) -> Result<Value> {
        self.command("execute/sync", &json!({ "script": script, "args": [] }))
    }

    /// Waits until a script returns `true`.
    ///
    /// # Errors
    ///
    /// When it throws, or does not by the deadline.
    pub fn until(&self, script: &str) -> Result<()> {
        wait_until(script, || Ok((self.run(script)? == Value::Bool(true)).then_some(())))
    }

    /// Clicks in the middle of the first element that a selector finds.
    ///
    /// # Errors
    ///
    /// When there is none, or it can't be clicked.
    pub fn click(&self, selector: &str) -> Result<()> {
        let found =
            self.command("element", &json!({ "using": "css selector", "value": selector }))?;
        let element = (found.as_object())
            .and_then(|object| object.values().next()?.as_str())
            .with_context(|| format!("no {selector}"))?;
        self.command(&format!("element/{element}/click"), &json!({})).map(drop)
    }

    /// Presses keys, one after the other.
    ///
    /// # Errors
    ///
    /// When the driver can't.
    pub fn press(&self, keys: impl IntoIterator<Item = char>) -> Result<()> {
        let actions: Vec<_> = (keys.into_iter())
            .flat_map(|key| ["keyDown", "keyUp"].map(|what| json!({ "type": what, "value": key })))
            .collect();
        let keyboard = json!({ "type": "key", "id": "keyboard", "actions": actions });
        self.command("actions", &json!({ "actions": [keyboard] })).map(drop)
    }

    /// Says what the system prefers.
    ///
    /// # Errors
    ///
    /// When the driver can't.
    pub fn prefer(&self, scheme: Scheme) -> Result<()> {
        let value = match scheme {
            Scheme::Light => "light",
            Scheme::Dark => "dark",
        };
        let features = json!([{ "name": "prefers-color-scheme", "value": value }]);
        let command =
            json!({ "cmd": "Emulation.setEmulatedMedia", "params": { "features": features } });
        self.command("goog/cdp/execute", &command).map(drop)
    }

    /// Demands that nothing was written to the console since the last time.
    ///
    /// # Errors
    ///
    /// With what was.
    pub fn console_is_empty(&self) -> Result<()> {
        let lines = self.log("browser")?;
        ensure!(lines.is_empty(), "on the console: {lines:?}");
        Ok(())
    }

    /// The addresses of everything that pages asked for since the last time, themselves included.
    ///
    /// # Errors
    ///
    /// When the driver can't.
    pub fn requests(&self) -> Result<Vec<String>> {
        let mut urls = Vec::new();
        for entry in self.log("performance")? {
            let text = entry["message"].as_str().unwrap_or_default();
            let event: Value = serde_json::from_str(text)?;
            let (method, parameters) = (&event["message"]["method"], &event["message"]["params"]);
            // The browser's own first page is no business of ours.
            let of_a_page = parameters["documentURL"]
                .as_str()
                .is_some_and(|document| !document.starts_with("chrome://"));
            if method == "Network.requestWillBeSent" && of_a_page {
                let url = parameters["request"]["url"].as_str();
                urls.push(url.unwrap_or_default().to_owned());
            }
        }
        Ok(urls)
    }

    /// Whether a page has opened a dialog.
    ///
    /// # Errors
    ///
    /// When the driver can't tell.
    pub fn has_dialog(&self) -> Result<bool> {
        let mut answer = self.agent.get(format!("{}/alert/text", self.session)).call()?;
        let answer: Value = serde_json::from_str(&answer.body_mut().read_to_string()?)?;
        Ok(answer["value"]["error"] != "no such alert")
    }

    /// Answers the dialog that a page has opened to ask for a text.
    ///
    /// # Errors
    ///
    /// When there is none.
    pub fn answer_dialog(&self, text: &str) -> Result<()> {
        self.command("alert/text", &json!({ "text": text }))?;
        self.command("alert/accept", &json!({})).map(drop)
    }

    /// Presses a key while Ctrl is held.
    ///
    /// # Errors
    ///
    /// When the driver can't.
    pub fn press_with_ctrl(&self, key: char) -> Result<()> {
        let action = |kind: &str, key: char| json!({ "type": kind, "value": key });
        let actions = [
            action("keyDown", key::CTRL),
            action("keyDown", key),
            action("keyUp", key),
            action("keyUp", key::CTRL),
        ];
        let keyboard = json!({ "type": "key", "id": "keyboard", "actions": actions });
        self.command("actions", &json!({ "actions": [keyboard] })).map(drop)
    }

    fn log(&self, kind: &str) -> Result<Vec<Value>> {
        let lines = self.command("se/log", &json!({ "type": kind }))?;
        Ok(lines.as_array().cloned().unwrap_or_default())
    }

    fn command(&self, name: &str, body: &Value) -> Result<Value> {
        self.post(&format!("{}/{name}", self.session), body)
    }

    fn post(&self, url: &str, body: &Value) -> Result<Value> {
        let request = self.agent.post(url).content_type("application/json");
        let mut response = request.send(body.to_string())?;
        let mut answer: Value = serde_json::from_str(
            &response.body_mut().with_config().limit(64 << 20).read_to_string()?,
        )?;
        let value = answer["value"].take();
        if let Some(error) = value["error"].as_str() {
            bail!("{url}: {error}: {}", value["message"].as_str().unwrap_or_default());
        }
        Ok(value)
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        if !self.session.is_empty() {
            // The browser ends with its session; an error means that it is gone already.
            drop(self.agent.delete(&self.session).call());
        }
        drop(self.driver.kill());
        drop(self.driver.wait());
    }
}
