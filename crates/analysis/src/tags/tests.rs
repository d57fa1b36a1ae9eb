use offwake_recording::{
    Recording, SpanId, TagChange, TagName, TagSet, TagSetId, ThreadExit, TraceId,
    units::{Tgid, Tid, Timestamp},
};

use super::ThreadTags;

fn set(id: u64, attributes: &[(u8, &str)]) -> TagSet {
    TagSet {
        id: TagSetId(id),
        tgid: Tgid(1),
        trace: Some(TraceId([id as u8; 16])),
        span: Some(SpanId([id as u8; 8])),
        attributes: attributes.iter().map(|(key, value)| (*key, (*value).to_owned())).collect(),
        labels: Vec::new(),
    }
}

fn change(tid: u32, at: u64, since: Option<u64>, set: Option<u64>) -> TagChange {
    TagChange {
        tid: Tid(tid),
        tgid: Tgid(1),
        at: Timestamp(at),
        since: since.map(Timestamp),
        set: set.map(TagSetId),
    }
}

fn recording(changes: Vec<TagChange>) -> Recording {
    let sets = [set(1, &[(0, "/checkout")]), set(2, &[(0, "/cart"), (7, "x")])];
    Recording {
        tag_sets: sets.into_iter().map(|set| (set.id, set)).collect(),
        tag_changes: changes,
        tag_names: vec![TagName { tgid: Tgid(1), key: 0, name: "http.route".to_owned() }],
        ..Recording::default()
    }
}

fn ids(recording: &Recording, times: std::ops::RangeInclusive<u64>) -> Vec<u64> {
    let tags = ThreadTags::new(recording);
    times.map(|at| tags.find(Tid(5), Timestamp(at)).map_or(0, |set| set.id.0)).collect()
}

#[test]
fn between_two_looks_that_differ_nothing_is_known() {
    let recording = recording(vec![
        change(5, 2, None, Some(1)),
        change(5, 6, Some(4), Some(2)),
        change(5, 9, Some(8), None),
        change(6, 3, None, Some(2)),
    ]);
    assert_eq!(ids(&recording, 1..=10), [0, 1, 1, 1, 0, 2, 2, 2, 0, 0]);
}

#[test]
fn work_has_the_label_that_its_thread_took_on_for_it() {
    const ROUTE: &str = "http.route";
    let recording = recording(vec![
        change(5, 2, None, Some(1)),
        change(5, 6, Some(4), Some(2)),
        change(5, 9, Some(8), None),
        change(5, 12, Some(11), Some(1)),
    ]);
    let tags = ThreadTags::new(&recording);
    let label = |from, to| tags.label_of_work(Tid(5), Timestamp(from), Timestamp(to), ROUTE);
    // All along; taken on meanwhile, and laid down before the end.
    assert_eq!(label(2, 4), Some("/checkout"));
    assert_eq!(label(4, 8), Some("/cart"));
    assert_eq!(label(4, 10), Some("/cart"));
    // Two: that of the end counts, if there is one then.
    assert_eq!(label(1, 7), Some("/cart"));
    assert_eq!(label(1, 10), None);
    assert_eq!(label(4, 12), Some("/checkout"));
    // None at all, none any more, and none of that name.
    assert_eq!((label(0, 1), label(9, 11)), (None, None));
    assert_eq!(tags.label_of_work(Tid(5), Timestamp(2), Timestamp(4), "route"), None);
    assert_eq!(tags.label_of_work(Tid(6), Timestamp(2), Timestamp(4), ROUTE), None);
}

#[test]
fn a_change_that_was_lost_leaves_a_stretch_of_which_nothing_is_known() {
    // At 4 the thread had another set, and that was lost: the next change says so.
    let lost = recording(vec![change(5, 2, None, Some(1)), change(5, 6, Some(3), None)]);
    assert_eq!(ids(&lost, 2..=6), [1, 1, 0, 0, 0]);
    // A set that was lost is none.
    let unknown = recording(vec![change(5, 2, None, Some(9))]);
    assert_eq!(ids(&unknown, 2..=3), [0, 0]);
}

#[test]
fn the_next_thread_of_a_number_says_nothing_until_it_does() {
    let mut recording = recording(vec![change(5, 2, None, Some(1))]);
    recording.exits.push(ThreadExit {
        at: Timestamp(4),
        tid: Tid(5),
        tgid: Tgid(1),
        in_target: true,
        seq: 0,
        status: 0,
    });
    assert_eq!(ids(&recording, 2..=5), [1, 1, 0, 0]);
}

#[test]
fn labels_have_the_names_that_their_process_gives_them() {
    let recording = recording(vec![change(5, 2, None, Some(2))]);
    let tags = ThreadTags::new(&recording);
    let set = tags.find(Tid(5), Timestamp(3)).unwrap();
    assert_eq!(tags.label(set, "http.route"), Some("/cart"));
    assert_eq!(tags.label(set, "key_7"), Some("x"));
    assert_eq!(tags.label(set, "key_0"), None);
    let labels: Vec<_> = tags.labels(set).into_keys().map(|name| name.into_owned()).collect();
    assert_eq!(labels, ["http.route", "key_7"]);
    assert_eq!(tags.label_names().len(), 2);
    assert_eq!(tags.threads_of(TraceId([2; 16])).into_iter().collect::<Vec<_>>(), [Tid(5)]);
    assert!(tags.threads_of(TraceId([3; 16])).is_empty());
}

#[test]
fn labels_that_have_their_names_with_them_need_no_others() {
    let mut recording = recording(vec![change(5, 2, None, Some(2))]);
    let set = recording.tag_sets.get_mut(&TagSetId(2)).unwrap();
    let label = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    set.labels = vec![label("user", "Ada"), label("", "empty")];
    let tags = ThreadTags::new(&recording);
    let set = tags.find(Tid(5), Timestamp(3)).unwrap();
    assert_eq!(tags.label(set, "user"), Some("Ada"));
    assert_eq!(tags.label(set, "http.route"), Some("/cart"));
    assert_eq!(tags.label(set, "Ada"), None);
    let labels = tags.labels(set);
    let labels: Vec<_> = labels.iter().map(|(name, value)| (name.as_ref(), *value)).collect();
    let expected = [("", "empty"), ("http.route", "/cart"), ("key_7", "x"), ("user", "Ada")];
    assert_eq!(labels, expected);
    assert_eq!(
        tags.label_names().into_iter().collect::<Vec<_>>(),
        ["", "http.route", "key_7", "user"]
    );
}

#[test]
fn a_span_is_of_the_only_trace_that_its_thread_worked_for_meanwhile() {
    let recording = recording(vec![
        change(5, 2, None, Some(1)),
        change(5, 6, Some(4), Some(2)),
        change(5, 9, Some(8), None),
    ]);
    let tags = ThreadTags::new(&recording);
    let only = |from, to| {
        let span = tags.find_only_span(Tid(5), Timestamp(from), Timestamp(to));
        span.map(|(trace, _)| trace.0[0])
    };
    assert_eq!(
        (only(1, 3), only(3, 4), only(7, 9), only(9, 12)),
        (Some(1), Some(1), Some(2), None)
    );
    // Both, in one span.
    assert_eq!(only(3, 6), None);
}
