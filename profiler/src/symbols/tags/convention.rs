//! The conventions by which programs say what their threads are doing.

use offwake_unwind::elf::tls_symbol::{TlsQuery, TlsSymbol};
use profiler_ebpf::tags::form;

/// One of them, the first of which a process that follows several is believed by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Convention {
    /// OpenTelemetry's thread context
    /// ([OTEP 4947](https://github.com/open-telemetry/opentelemetry-specification/pull/4947)).
    ThreadContext,
    /// custom-labels, version 1
    /// ([its ABI](https://github.com/polarsignals/custom-labels/blob/02cdba5b/custom-labels-v1.md)).
    CustomLabels,
}

impl Convention {
    pub(super) const ALL: [Self; 2] = [Self::ThreadContext, Self::CustomLabels];

    /// The variable of each thread, and the one that says which version of the convention it has.
    fn symbols(self) -> (&'static str, Option<&'static str>) {
        match self {
            Self::ThreadContext => ("otel_thread_ctx_v1", None),
            Self::CustomLabels => ("custom_labels_current_set", Some("custom_labels_abi_version")),
        }
    }

    /// What the variable leads to, for the kernel half.
    pub(super) fn form(self) -> u64 {
        match self {
            Self::ThreadContext => form::CONTEXT,
            Self::CustomLabels => form::CUSTOM_LABELS,
        }
    }
}

/// What files are searched for: in the order of [`Convention::ALL`].
pub(super) fn queries() -> Vec<TlsQuery> {
    let query = |convention: Convention| {
        let (name, version) = convention.symbols();
        TlsQuery { name: name.to_owned(), version: version.map(str::to_owned) }
    };
    Convention::ALL.map(query).to_vec()
}

/// What a file has.
#[derive(Clone, Debug)]
pub(super) struct Carrier {
    pub(super) convention: Convention,
    pub(super) symbol: TlsSymbol,
}
