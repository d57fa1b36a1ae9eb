//! Spans as OpenTelemetry has them: `ExportTraceServiceRequest` in the JSON encoding of OTLP
//! (<https://github.com/open-telemetry/opentelemetry-proto/blob/v1.9.0/docs/specification.md#json-protobuf-encoding>):
//! ids in hexadecimal, enums as numbers, 64-bit numbers as decimal text.
//!
//! The messages are written out here, as far as they are used. The crate `opentelemetry-proto` has all
//! of them, and brings tonic's and the SDK's types along for a dozen fields.

use std::{borrow::Cow, collections::HashMap, io};

use offwake_recording::{
    ContainerId, ContainerNames, ProcessInfo, Recording,
    units::{Tgid, Tid, Timestamp},
};
use serde::{Serialize, Serializer};

use crate::{
    report, text,
    timeline::{NAMELESS, Timeline},
};

use super::{LinkKind, Span, SpanId, SpanKind, SpanStatus, Spans, TraceId, json::whole_micros};

/// The most bytes of a path.
const MAX_PATH_BYTES: usize = 1_024;

/// The clock that the times of an export are from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExportClock {
    /// The wall's, as OTLP wants it.
    Wall,
    /// `CLOCK_MONOTONIC`: the wall's was not read while recording. Every resource says so.
    Monotonic,
}

/// Turns spans into OTLP.
pub struct Exporter<'a> {
    recording: &'a Recording,
    spans: &'a Spans,
    /// Unix time of the window's beginning. One for all, so that a clock that was set meanwhile turns
    /// no span round.
    start_unix_ns: Option<i64>,
    services: HashMap<Tgid, Service<'a>>,
    containers: HashMap<&'a ContainerId, &'a ContainerNames>,
    /// By the thread whose time a request is, and by when it was answered.
    labels: HashMap<(Tid, Timestamp), RequestLabels>,
}

/// The class and the band of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RequestLabels {
    /// `orders-api (tcp 127.0.0.1:8080)`
    pub(crate) class: String,
    /// `p99–100`
    pub(crate) band: String,
}

/// A process, as OpenTelemetry's service.
struct Service<'a> {
    name: Cow<'a, str>,
    process: Option<&'a ProcessInfo>,
}

impl<'a> Exporter<'a> {
    /// Looks up the processes of the spans.
    #[must_use]
    pub fn new(recording: &'a Recording, timeline: &'a Timeline, spans: &'a Spans) -> Self {
        let mut services = HashMap::new();
        for span in &spans.spans {
            services.entry(span.pid).or_insert_with(|| Service {
                // A process is called what its first thread is.
                name: (timeline.find_thread(Tid(span.pid.0), span.ended_at))
                    .and_then(|first| timeline.thread(first)?.comm_at(span.ended_at))
                    .map_or(Cow::Borrowed(&*span.comm), Cow::Borrowed),
                process: find_process(recording, span.pid, span.ended_at),
            });
        }
        let start_unix_ns = report::unix_time(recording, recording.meta.window.start);
        let containers = (recording.cgroups.values())
            .filter_map(|cgroup| Some((cgroup.container.as_ref()?, &cgroup.names)))
            .collect();
        let labels = HashMap::new();
        Self { recording, spans, start_unix_ns, services, containers, labels }
    }

    /// Says of spans which request they are: by the thread whose time it is, and by when it was answered.
    pub(crate) fn with_request_labels(
        self,
        labels: HashMap<(Tid, Timestamp), RequestLabels>,
    ) -> Self {
        Self { labels, ..self }
    }

    /// Returns the clock that the times are from.
    #[must_use]
    pub fn clock(&self) -> ExportClock {
        match self.start_unix_ns {
            Some(_) => ExportClock::Wall,
            None => ExportClock::Monotonic,
        }
    }

    /// Writes all spans as one request.
    ///
    /// # Errors
    ///
    /// Those of `out`.
    pub fn write(&self, out: &mut dyn io::Write) -> io::Result<()> {
        serde_json::to_writer(&mut *out, &self.request(&self.spans.spans))?;
        out.write_all(b"\n")
    }

    /// Returns requests of at most `most` spans each.
    pub fn batches(&self, most: usize) -> impl Iterator<Item = (&'a [Span], Request<'_>)> {
        self.spans.spans.chunks(most.max(1)).map(|spans| (spans, self.request(spans)))
    }

    fn request(&self, spans: &'a [Span]) -> Request<'_> {
        let mut places: HashMap<Tgid, usize> = HashMap::new();
        let mut resource_spans: Vec<ResourceSpans<'_>> = Vec::new();
        for span in spans {
            let place = *places.entry(span.pid).or_insert_with(|| {
                resource_spans.push(self.resource(span.pid));
                resource_spans.len() - 1
            });
            if let Some([scope]) = resource_spans.get_mut(place).map(|it| &mut it.scope_spans) {
                scope.spans.push(LazySpanMessage { exporter: self, span });
            }
        }
        Request { resource_spans }
    }

    fn resource(&self, pid: Tgid) -> ResourceSpans<'_> {
        let meta = &self.recording.meta;
        let service = self.services.get(&pid);
        let mut attributes = Attributes::default();
        attributes.push_text("service.name", service.map_or(NAMELESS, |it| &it.name));
        attributes.push_number("process.pid", u64::from(pid.0));
        let process = service.and_then(|service| service.process);
        if let Some(path) = process.and_then(|process| process.executable.as_deref()) {
            let name = path.rsplit('/').next().unwrap_or(path);
            attributes.push_text("process.executable.name", text::cut_bytes(name, MAX_PATH_BYTES));
            attributes.push_text("process.executable.path", text::cut_bytes(path, MAX_PATH_BYTES));
        }
        if let Some(cgroup) = process.and_then(|process| process.cgroup.as_deref()) {
            attributes.push_text("process.linux.cgroup", text::cut_bytes(cgroup, MAX_PATH_BYTES));
            if let Some(container) = ContainerId::from_cgroup_path(cgroup) {
                attributes
                    .push_text("container.id", text::cut_bytes(container.as_str(), MAX_PATH_BYTES));
                if let Some(names) = self.containers.get(&container) {
                    attributes.push_container(names);
                }
            }
        }
        attributes.push_text("host.name", meta.host.as_str());
        attributes.push_text("os.type", "linux");
        if self.clock() == ExportClock::Monotonic {
            attributes.push_text("offwake.clock", "CLOCK_MONOTONIC");
        }
        let mut left_out = Attributes::default();
        for (key, count) in self.spans.left_out.counts() {
            left_out.push_number(key, count);
        }
        let scope = Scope { name: "offwake", version: &meta.version, attributes: left_out };
        let scope_spans = [ScopeSpans { scope, spans: Vec::new() }];
        ResourceSpans { resource: Resource { attributes }, scope_spans }
    }

    /// Returns Unix time in nanoseconds, as text.
    fn time(&self, at: Timestamp) -> String {
        let window = self.recording.meta.window;
        let since = i128::from(at.0) - i128::from(window.start.0);
        let start = self.start_unix_ns.map_or(i128::from(window.start.0), i128::from);
        u64::try_from((start + since).max(0)).unwrap_or(u64::MAX).to_string()
    }

    fn span(&self, span: &'a Span) -> SpanMessage<'_> {
        /// W3C's flag of a sampled trace; it is known whether the parent is remote; the parent is
        /// remote.
        const SAMPLED: u32 = 0x1;
        const HAS_IS_REMOTE: u32 = 0x100;
        const IS_REMOTE: u32 = 0x200;

        let is_asked = |kind| span.links.iter().any(|link| link.kind == kind);
        let flags = match span.parent_span_id {
            None => SAMPLED,
            Some(_) if is_asked(LinkKind::RequestedBy) => SAMPLED | HAS_IS_REMOTE | IS_REMOTE,
            Some(_) => SAMPLED | HAS_IS_REMOTE,
        };
        SpanMessage {
            trace_id: span.trace_id,
            span_id: span.span_id,
            parent_span_id: span.parent_span_id,
            flags,
            name: &span.name,
            kind: match span.kind {
                SpanKind::Internal => 1,
                SpanKind::Server => 2,
                SpanKind::Client => 3,
            },
            start_time_unix_nano: self.time(span.started_at),
            end_time_unix_nano: self.time(span.ended_at),
            attributes: self.attributes(span),
            links: (span.links.iter())
                .map(|link| LinkMessage {
                    trace_id: link.trace_id,
                    span_id: link.span_id,
                    attributes: Attributes::single("offwake.link", link_name(link.kind)),
                })
                .collect(),
            status: status(span.status),
        }
    }
}

impl<'a> Exporter<'a> {
    fn attributes(&'a self, span: &'a Span) -> Attributes<'a> {
        let mut attributes = attributes(span);
        if span.kind != SpanKind::Internal
            && let Some(labels) = self.labels.get(&(span.tid, span.ended_at))
        {
            attributes.push_text("offwake.request.class", &*labels.class);
            attributes.push_text("offwake.request.band", &*labels.band);
        }
        attributes
    }
}

/// Returns what was read of a process last before `at`, or first after it.
fn find_process(recording: &Recording, tgid: Tgid, at: Timestamp) -> Option<&ProcessInfo> {
    let infos = &recording.processes;
    let later = infos.partition_point(|info| (info.tgid, info.at) <= (tgid, at));
    let of_process = |place: usize| infos.get(place).filter(|info| info.tgid == tgid);
    later.checked_sub(1).and_then(of_process).or_else(|| of_process(later))
}

fn attributes(span: &Span) -> Attributes<'_> {
    let mut attributes = Attributes::default();
    attributes.push_number("thread.id", u64::from(span.tid.0));
    attributes.push_text("thread.name", &*span.comm);
    attributes.push_number("offwake.self_us", whole_micros(span.self_time()));
    attributes.push_number("offwake.wait_us", whole_micros(span.wait_time()));
    attributes.push_number("offwake.runnable_us", whole_micros(span.times.runnable));
    attributes.push_number("offwake.lost_us", whole_micros(span.times.lost));
    if let Some(cause) = span.cause {
        attributes.push_text("offwake.cause", cause.name());
    }
    if let Some(frame) = &span.frame {
        attributes.push_text("code.function.name", &**frame);
    }
    if let Some(on) = &span.waited_on {
        attributes.push_text("offwake.waited_on", &**on);
    }
    if let Some(on) = span.waiting_on {
        attributes.push_number("offwake.waiting_on.pid", u64::from(on.tgid.0));
        attributes.push_number("offwake.waiting_on.tid", u64::from(on.tid.0));
    }
    if let Some(marker) = &span.marker {
        attributes.push_text("offwake.marker", &**marker);
    }
    attributes.push_text("offwake.status", span.status.name());
    if let Some(code) = span.status.exit_code() {
        attributes.push_number("process.exit.code", u64::from(code));
    }
    if let Some(signal) = span.status.signal() {
        attributes.push_number("offwake.signal", u64::from(signal));
    }
    attributes
}

fn link_name(kind: LinkKind) -> &'static str {
    match kind {
        LinkKind::RequestedBy => "requested_by",
        LinkKind::HandedOnBy => "handed_on_by",
        LinkKind::EndedBy => "ended_by",
        LinkKind::Program => "program",
    }
}

/// An error, where there was one; what went well is left unset, as OpenTelemetry wants it of those
/// who only watch
/// (<https://opentelemetry.io/docs/specs/otel/trace/api/#set-status>).
fn status(status: SpanStatus) -> Option<StatusMessage> {
    let message = match status {
        SpanStatus::Ok
        | SpanStatus::Exited(Some(0))
        | SpanStatus::Unfinished
        | SpanStatus::Lost => {
            return None;
        }
        SpanStatus::Exited(Some(code)) => format!("exited with code {code}"),
        SpanStatus::Exited(None) => "exited".to_owned(),
        SpanStatus::Crashed(signal) => format!("crashed by signal {signal}"),
        SpanStatus::Killed(signal) => format!("killed by signal {signal}"),
    };
    Some(StatusMessage { code: 2, message })
}

/// `ExportTraceServiceRequest`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Request<'a> {
    resource_spans: Vec<ResourceSpans<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ResourceSpans<'a> {
    resource: Resource<'a>,
    scope_spans: [ScopeSpans<'a>; 1],
}

#[derive(Serialize)]
struct Resource<'a> {
    attributes: Attributes<'a>,
}

#[derive(Serialize)]
struct ScopeSpans<'a> {
    scope: Scope<'a>,
    spans: Vec<LazySpanMessage<'a>>,
}

#[derive(Serialize)]
struct Scope<'a> {
    name: &'static str,
    version: &'a str,
    /// What is not among the spans, all processes' together.
    #[serde(skip_serializing_if = "Attributes::is_empty")]
    attributes: Attributes<'a>,
}

/// A span that is turned into its message only when it is written, so that not all messages exist
/// at once.
struct LazySpanMessage<'a> {
    exporter: &'a Exporter<'a>,
    span: &'a Span,
}

impl Serialize for LazySpanMessage<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.exporter.span(self.span).serialize(serializer)
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct SpanMessage<'a> {
    trace_id: TraceId,
    span_id: SpanId,
    #[serde(skip_serializing_if = "Option::is_none")]
    parent_span_id: Option<SpanId>,
    flags: u32,
    name: &'a str,
    kind: u8,
    start_time_unix_nano: String,
    end_time_unix_nano: String,
    attributes: Attributes<'a>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    links: Vec<LinkMessage<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<StatusMessage>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct LinkMessage<'a> {
    trace_id: TraceId,
    span_id: SpanId,
    attributes: Attributes<'a>,
}

#[derive(Serialize)]
struct StatusMessage {
    code: u8,
    message: String,
}

#[derive(Default, Serialize)]
#[serde(transparent)]
struct Attributes<'a>(Vec<KeyValue<'a>>);

#[derive(Serialize)]
struct KeyValue<'a> {
    key: &'static str,
    value: AnyValue<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
enum AnyValue<'a> {
    StringValue(Cow<'a, str>),
    IntValue(String),
}

impl<'a> Attributes<'a> {
    fn single(key: &'static str, text: &'a str) -> Self {
        let mut attributes = Self::default();
        attributes.push_text(key, text);
        attributes
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn push_text(&mut self, key: &'static str, text: impl Into<Cow<'a, str>>) {
        self.0.push(KeyValue { key, value: AnyValue::StringValue(text.into()) });
    }

    /// By [OpenTelemetry's names](https://opentelemetry.io/docs/specs/semconv/resource/container/); those
    /// of a pod's are [Kubernetes' own](https://opentelemetry.io/docs/specs/semconv/resource/k8s/).
    fn push_container(&mut self, names: &ContainerNames) {
        let name_key = if names.pod.is_some() { "k8s.container.name" } else { "container.name" };
        let pod = names.pod.as_ref();
        let texts = [
            (name_key, names.name.as_deref()),
            ("container.image.name", names.image.as_deref()),
            ("k8s.pod.name", pod.map(|pod| pod.name.as_str())),
            ("k8s.namespace.name", pod.map(|pod| pod.namespace.as_str())),
        ];
        for (key, text) in texts {
            if let Some(text) = text {
                self.push_text(key, text::cut_bytes(text, MAX_PATH_BYTES));
            }
        }
    }

    fn push_number(&mut self, key: &'static str, number: u64) {
        self.0.push(KeyValue { key, value: AnyValue::IntValue(number.to_string()) });
    }
}

#[cfg(test)]
mod tests {
    use super::Attributes;
    use offwake_recording::{ContainerNames, PodName};

    fn format_container(names: &ContainerNames) -> String {
        let mut attributes = Attributes::default();
        attributes.push_container(names);
        let pairs = attributes.0.iter().map(|pair| {
            format!("{}={}", pair.key, serde_json::to_value(&pair.value).unwrap()["stringValue"])
        });
        pairs.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn containers_are_called_by_opentelemetrys_names_and_those_of_pods_by_kubernetes_own() {
        let name = || Some("web".to_owned());
        let image = Some("nginx:1".to_owned());
        let alone = ContainerNames { name: name(), image, pod: None };
        assert_eq!(
            format_container(&alone),
            r#"container.name="web" container.image.name="nginx:1""#
        );
        let pod = PodName { namespace: "shop".to_owned(), name: "cart".to_owned() };
        let in_pod = ContainerNames { name: name(), image: None, pod: Some(pod) };
        assert_eq!(
            format_container(&in_pod),
            r#"k8s.container.name="web" k8s.pod.name="cart" k8s.namespace.name="shop""#
        );
        assert_eq!(format_container(&ContainerNames::default()), "");
    }
}
