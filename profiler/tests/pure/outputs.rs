//! Every format of the list, from one analysis.

use std::{collections::HashSet, fs::File, path::Path, ptr};

use offwake_analysis::{
    analysis::{Analysis, AnalysisInput, AnalysisOptions},
    formats::{self, FORMATS, Readers, Written},
};
use offwake_recording::{Recording, stream};

fn demo() -> Recording {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/demo.offwake");
    stream::read(&File::open(path).unwrap(), 1 << 30).unwrap()
}

#[test]
fn names_and_extensions_stand_for_one_format_each() {
    for format in FORMATS {
        assert_eq!(formats::from_name(format.name()), Ok(format));
        let path = format!("some.where/x.{}", format.extension());
        assert_eq!(formats::from_path(Path::new(&path)), Ok(format));
        // Only those who recorded may read the command line of every process of a machine.
        let has_command_lines = ["offwake", "pftrace"].contains(&format.name());
        let readers = if has_command_lines { Readers::Owner } else { Readers::Anybody };
        assert_eq!(format.readers(), readers, "{format:?}");
    }
    let names: HashSet<_> = FORMATS.map(|format| format.name()).into();
    assert_eq!(names.len(), FORMATS.len());
}

#[test]
fn each_format_writes_a_recording_whatever_was_built_ahead() {
    let input = AnalysisInput::new(demo());
    let prepared = Analysis::new(&input, AnalysisOptions::default());
    prepared.lanes();
    prepared.spans();
    for format in FORMATS {
        let mut ahead = Vec::new();
        let written = format.write(&prepared, &mut ahead).unwrap();
        assert_eq!(written, Written::Everything, "{format:?}");
        assert!(!ahead.is_empty(), "{format:?}");
        let mut on_demand = Vec::new();
        let analysis = Analysis::new(&input, AnalysisOptions::default());
        let written = format.write(&analysis, &mut on_demand).unwrap();
        assert_eq!(written, Written::Everything, "{format:?}");
        assert!(ahead == on_demand, "{format:?}");
    }
}

#[test]
fn everything_is_built_once() {
    let input = AnalysisInput::new(demo());
    let mut analysis = Analysis::new(&input, AnalysisOptions::default());
    assert!(analysis.built_spans().is_none());
    let (timeline, blame) = (ptr::from_ref(input.timeline()), ptr::from_ref(analysis.blame()));
    analysis.limit_report();
    let (report, lanes) = (ptr::from_ref(analysis.report()), ptr::from_ref(analysis.lanes()));
    let spans = ptr::from_ref(analysis.spans());
    for format in FORMATS {
        let _written = format.write(&analysis, &mut Vec::new()).unwrap();
    }
    assert!(ptr::eq(timeline, analysis.blame().timeline()));
    assert!(ptr::eq(blame, analysis.blame()) && ptr::eq(report, analysis.report()));
    assert!(ptr::eq(lanes, analysis.lanes()) && ptr::eq(spans, analysis.spans()));
}

#[test]
fn a_recording_with_bytes_is_written_as_it_was() {
    let bytes = b"as it was".to_vec();
    let input = AnalysisInput::with_encoded(demo(), Box::new(bytes.clone()));
    let mut written = Vec::new();
    input.write_recording(&mut written).unwrap();
    assert_eq!(written, bytes);
    let mut encoded = Vec::new();
    AnalysisInput::new(demo()).write_recording(&mut encoded).unwrap();
    assert_eq!(stream::read(&encoded[..], 1 << 30).unwrap().waits, demo().waits);
}
