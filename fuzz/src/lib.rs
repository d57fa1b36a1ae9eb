//! What the fuzz targets share.

pub mod content;
pub mod frames;
pub mod messages;

use std::io;

use offwake_analysis::{
    analysis::{AnalysisOptions, Extent},
    blame::{Blame, ChainLimits},
    export::{Export, Table, parquet},
    filter::Filter,
    formats::{firefox, json, pprof, speedscope},
    perfetto::{self, TraceInput, TraceLimits},
    report::{Report, flame::View, folded, summary, svg},
    spans::{self, SpanInput, SpanLimits},
    timeline::Timeline,
};
use offwake_recording::{Recording, units::Nanos};

/// What a recording may take.
pub const MEMORY: usize = 64 << 20;

type Writer = fn(&Report, &mut dyn io::Write) -> io::Result<()>;
type PictureWriter = fn(&Report, &View, &mut dyn io::Write) -> io::Result<()>;

/// Reports in every format, and exports.
///
/// # Panics
///
/// If a sum does not close: whatever was recorded, a thread's time is its time.
pub fn report(recording: &Recording) {
    let timeline = Timeline::build(recording);
    let blame = Blame::new(recording, &timeline, ChainLimits::default());
    let report = Report::new(&blame, &Filter::default());
    for thread in &report.threads {
        let ledger = &thread.ledger;
        assert_eq!(ledger.wall_ns, ledger.on_cpu_ns + ledger.runnable_ns + ledger.blocked_ns);
    }
    for wait in &report.waits {
        assert_eq!(wait.blame.iter().map(|part| part.ns).sum::<Nanos>(), wait.blocked_ns);
    }
    for write in [json::write, json::write_full, summary::write] as [Writer; 3] {
        write(&report, &mut io::sink()).expect("a sink takes everything");
    }
    let pprof: PictureWriter = |report, view, out| pprof::write(report, view, Extent::Bounded, out);
    let pictures: [PictureWriter; 4] = [folded::write, svg::write, pprof, speedscope::write];
    for write in pictures {
        write(&report, &View::default(), &mut io::sink()).expect("a sink takes everything");
    }
    let written = firefox::write(&blame, &report, &AnalysisOptions::default(), &mut io::sink());
    let _left_out = written.expect("a sink takes everything");
    let evidence = SpanInput {
        recording,
        timeline: &timeline,
        wake_source: &|wait| blame.wake_source(wait),
        cause: &|wait| blame.cause(wait),
    };
    let spans = spans::find_spans(evidence, &Filter::default(), SpanLimits::default());
    let trace = TraceInput {
        blame: &blame,
        filter: &Filter::default(),
        spans: &spans,
        limits: TraceLimits::USABLE,
    };
    perfetto::write(trace, &mut io::sink()).expect("a sink takes everything");
    let export = Export::new(&blame);
    for table in Table::ALL {
        // Times of any number of hours are refused.
        for part in export.partitions(table).iter().flatten() {
            parquet::write(&export, table, part, &mut io::sink()).expect("any row can be written");
        }
    }
}
