//! The parts of a profile, by the names that the Firefox Profiler gives them
//! ([`profile.ts`](https://github.com/firefox-devtools/profiler/blob/main/src/types/profile.ts)).

use serde::{Serialize, Serializer};

/// A time or a moment: nanoseconds, written as milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Milliseconds(pub(super) u64);

impl Serialize for Milliseconds {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        const NANOSECONDS: u64 = 1_000_000;
        match (self.0 / NANOSECONDS, self.0 % NANOSECONDS) {
            (whole, 0) => serializer.serialize_u64(whole),
            // To the nanosecond, up to three months.
            _ => serializer.serialize_f64(self.0 as f64 / NANOSECONDS as f64),
        }
    }
}

#[derive(Serialize)]
pub(super) struct Profile {
    pub(super) meta: Meta,
    pub(super) libs: [(); 0],
    pub(super) shared: Shared,
    pub(super) threads: Vec<Thread>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Meta {
    pub(super) interval: u32,
    pub(super) start_time: Milliseconds,
    pub(super) profiling_start_time: Milliseconds,
    pub(super) profiling_end_time: Milliseconds,
    pub(super) process_type: u32,
    pub(super) product: String,
    pub(super) stackwalk: u32,
    pub(super) debug: bool,
    pub(super) version: u32,
    pub(super) preprocessed_profile_version: u32,
    pub(super) oscpu: String,
    pub(super) symbolicated: bool,
    pub(super) categories: Vec<Category>,
    pub(super) marker_schema: [MarkerSchema; 1],
    pub(super) sample_units: SampleUnits,
    pub(super) imported_from: String,
    pub(super) uses_only_one_stack_type: bool,
    pub(super) source_code_is_not_on_searchfox: bool,
    pub(super) keep_profile_thread_order: bool,
    pub(super) extra: [ExtraSection; 1],
}

#[derive(Serialize)]
pub(super) struct Category {
    pub(super) name: &'static str,
    pub(super) color: &'static str,
    pub(super) subcategories: [&'static str; 1],
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct MarkerSchema {
    pub(super) name: &'static str,
    pub(super) tooltip_label: &'static str,
    pub(super) table_label: &'static str,
    pub(super) chart_label: &'static str,
    pub(super) display: [&'static str; 3],
    pub(super) fields: [MarkerField; 5],
    pub(super) description: &'static str,
}

#[derive(Serialize)]
pub(super) struct MarkerField {
    pub(super) key: &'static str,
    pub(super) label: &'static str,
    pub(super) format: &'static str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SampleUnits {
    pub(super) time: &'static str,
    pub(super) event_delay: &'static str,
    #[serde(rename = "threadCPUDelta")]
    pub(super) thread_cpu_delta: &'static str,
}

#[derive(Serialize)]
pub(super) struct ExtraSection {
    pub(super) label: &'static str,
    pub(super) entries: Vec<ExtraEntry>,
}

#[derive(Serialize)]
pub(super) struct ExtraEntry {
    pub(super) label: &'static str,
    pub(super) format: &'static str,
    pub(super) value: String,
}

/// What all threads have in common. Each column of a table is as long as the table.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Shared {
    pub(super) stack_table: StackTable,
    pub(super) frame_table: FrameTable,
    pub(super) func_table: FuncTable,
    pub(super) resource_table: ResourceTable,
    pub(super) native_symbols: NativeSymbols,
    pub(super) sources: Sources,
    pub(super) string_array: Vec<String>,
}

#[derive(Default, Serialize)]
pub(super) struct StackTable {
    pub(super) frame: Vec<u32>,
    /// The stack without its last frame.
    pub(super) prefix: Vec<Option<u32>>,
    pub(super) length: usize,
}

#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct FrameTable {
    /// Always -1: frames are only names.
    pub(super) address: Vec<i32>,
    pub(super) inline_depth: Vec<u32>,
    pub(super) category: Vec<Option<u8>>,
    pub(super) subcategory: Vec<Option<u8>>,
    pub(super) func: Vec<u32>,
    pub(super) native_symbol: Vec<Option<u32>>,
    #[serde(rename = "innerWindowID")]
    pub(super) inner_window_id: Vec<Option<u32>>,
    pub(super) line: Vec<Option<u32>>,
    pub(super) column: Vec<Option<u32>>,
    pub(super) length: usize,
}

#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct FuncTable {
    pub(super) name: Vec<u32>,
    #[serde(rename = "isJS")]
    pub(super) is_js: Vec<bool>,
    #[serde(rename = "relevantForJS")]
    pub(super) relevant_for_js: Vec<bool>,
    /// Always -1: none.
    pub(super) resource: Vec<i32>,
    pub(super) source: Vec<Option<u32>>,
    pub(super) line_number: Vec<Option<u32>>,
    pub(super) column_number: Vec<Option<u32>>,
    pub(super) length: usize,
}

#[derive(Default, Serialize)]
pub(super) struct ResourceTable {
    pub(super) lib: [(); 0],
    pub(super) name: [(); 0],
    pub(super) host: [(); 0],
    pub(super) r#type: [(); 0],
    pub(super) length: usize,
}

#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct NativeSymbols {
    pub(super) lib_index: [(); 0],
    pub(super) address: [(); 0],
    pub(super) name: [(); 0],
    pub(super) function_size: [(); 0],
    pub(super) length: usize,
}

#[derive(Default, Serialize)]
pub(super) struct Sources {
    pub(super) id: Vec<Option<u32>>,
    pub(super) filename: Vec<u32>,
    pub(super) length: usize,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Thread {
    pub(super) process_type: &'static str,
    pub(super) process_startup_time: Milliseconds,
    pub(super) process_shutdown_time: Option<Milliseconds>,
    pub(super) register_time: Milliseconds,
    pub(super) unregister_time: Option<Milliseconds>,
    pub(super) paused_ranges: [(); 0],
    pub(super) show_markers_in_timeline: bool,
    pub(super) name: String,
    pub(super) is_main_thread: bool,
    pub(super) process_name: String,
    pub(super) pid: String,
    pub(super) tid: u32,
    pub(super) samples: Samples,
    pub(super) markers: Markers,
}

#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Samples {
    pub(super) stack: Vec<Option<u32>>,
    pub(super) time: Vec<Milliseconds>,
    pub(super) weight: Vec<Milliseconds>,
    pub(super) weight_type: &'static str,
    pub(super) length: usize,
}

#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Markers {
    pub(super) data: Vec<MarkerData>,
    pub(super) name: Vec<u32>,
    pub(super) start_time: Vec<Milliseconds>,
    pub(super) end_time: Vec<Milliseconds>,
    /// Always 1: an interval.
    pub(super) phase: Vec<u8>,
    pub(super) category: Vec<u8>,
    pub(super) length: usize,
}

/// What a wait's marker says: numbers of texts.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct MarkerData {
    pub(super) r#type: &'static str,
    pub(super) on: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) place: Option<u32>,
    pub(super) woken_by: u32,
    pub(super) spent_on: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) ranges: Option<u32>,
}
