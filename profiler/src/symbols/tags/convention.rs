//! The conventions by which programs say what their threads are doing.

use offwake_unwind::elf::{
    goroutine_labels::GoroutineLabels,
    tls_symbol::{TlsQuery, TlsSymbol},
};
use profiler_ebpf::tags::{GoOffsets, TagSource, form};

/// One of them, the first of which a process that follows several is believed by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Convention {
    /// OpenTelemetry's thread context
    /// ([OTEP 4947](https://github.com/open-telemetry/opentelemetry-specification/pull/4947)).
    ThreadContext,
    /// custom-labels, version 1
    /// ([its ABI](https://github.com/polarsignals/custom-labels/blob/02cdba5b/custom-labels-v1.md)).
    CustomLabels,
    /// Go's own labels of goroutines ([`runtime/pprof`](https://pkg.go.dev/runtime/pprof#Do)).
    Go,
}

/// Those that have a variable of a name, with the names, the one that says which version it is, and
/// what it leads to.
const NAMED: [(Convention, &str, Option<&str>, u64); 2] = [
    (Convention::ThreadContext, "otel_thread_ctx_v1", None, form::CONTEXT),
    (
        Convention::CustomLabels,
        "custom_labels_current_set",
        Some("custom_labels_abi_version"),
        form::CUSTOM_LABELS,
    ),
];

/// What files are searched for: in the order of [`NAMED`].
pub(super) fn queries() -> Vec<TlsQuery> {
    let query = |(_, name, version, _): (_, &str, Option<&str>, _)| TlsQuery {
        name: name.to_owned(),
        version: version.map(str::to_owned),
    };
    NAMED.map(query).to_vec()
}

/// What a file has.
#[derive(Clone, Debug)]
pub(super) struct Carrier {
    pub(super) convention: Convention,
    pub(super) symbol: TlsSymbol,
    /// As in [`TagSource`].
    form: u64,
    /// As in [`TagSource`].
    go: GoOffsets,
}

impl Carrier {
    /// What was found for the query of this number.
    pub(super) fn named(query: usize, symbol: TlsSymbol) -> Option<Self> {
        let &(convention, _, _, form) = NAMED.get(query)?;
        Some(Self { convention, symbol, form, go: GoOffsets::default() })
    }

    /// What a Go program has. None if nobody knows where its Go keeps what.
    pub(super) fn go(labels: GoroutineLabels) -> Option<Self> {
        let (major, minor) = labels.version?;
        let (form, go) = match major {
            1 => find_go_offsets(minor)?,
            _ => return None,
        };
        Some(Self { convention: Convention::Go, symbol: labels.current?, form, go })
    }

    /// A place, completed with what is there.
    pub(super) fn complete(&self, source: TagSource) -> TagSource {
        TagSource { form: self.form, go: self.go, ..source }
    }
}

/// Where Go 1.x has what: `g.m`, `m.curg` and `g.labels`, as the debug information of each release
/// says for x86_64
/// ([runtime2.go](https://github.com/golang/go/blob/go1.19.8/src/runtime/runtime2.go#L407)).
fn find_go_offsets(minor: u8) -> Option<(u64, GoOffsets)> {
    let found = match minor {
        18..=20 => (form::GO_MAP, GoOffsets::new(48, 192, 360)),
        21..=22 => (form::GO_MAP, GoOffsets::new(48, 192, 344)),
        23 => (form::GO_MAP, GoOffsets::new(48, 192, 352)),
        24 => (form::GO_LIST, GoOffsets::new(48, 192, 352)),
        25 => (form::GO_LIST, GoOffsets::new(48, 184, 344)),
        26..=27 => (form::GO_LIST, GoOffsets::new(48, 184, 352)),
        _ => return None,
    };
    Some(found)
}
