//! What holds for the spans of every recording, whatever was lost of it.

use std::collections::BTreeSet;

use offwake_analysis::{
    blame::{Blame, ChainLimits, WakeSource},
    filter::Filter,
    spans::SpanLimits,
    timeline::{Timeline, WaitIndex},
};
use proptest::prelude::*;

use super::{OPEN, check, find_with};
use crate::{draw::ticks, properties::world};

fn limits() -> impl Strategy<Value = SpanLimits> {
    let share = prop_oneof![Just("1"), Just("0.5")].prop_map(|text| text.parse().unwrap());
    (0..6_u16, 0..30_u64, 0..6_u32, prop_oneof![0..9_u32, Just(u32::MAX)], 0..4_u64, share)
        .prop_map(|(depth, lifetime, fan_out, max_spans, shortest, sample)| SpanLimits {
            depth,
            lifetime: ticks(lifetime),
            fan_out,
            max_spans,
            shortest: ticks(shortest),
            sample,
        })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn spans_nest_whatever_was_lost(world in world(), limits in limits()) {
        for recording in [world.full(), world.lossy()] {
            for limits in [limits, OPEN] {
                let spans = find_with(&recording, &Filter::default(), limits);
                check(&recording, &spans);
                prop_assert_eq!(&spans, &find_with(&recording, &Filter::default(), limits));
            }
        }
    }

    #[test]
    fn no_wait_of_the_target_for_a_thread_is_forgotten(world in world()) {
        let recording = world.lossy();
        let timeline = Timeline::build(&recording);
        let blame = Blame::new(&recording, &timeline, ChainLimits::default());
        let spans = find_with(&recording, &Filter::default(), OPEN);
        let ends: BTreeSet<_> = spans.spans.iter().filter(|span| span.cause.is_some())
            .map(|span| (span.tid, span.ended_at)).collect();
        for (wait, n) in recording.waits.iter().zip(0..) {
            let by_thread = matches!(blame.wake_source(WaitIndex(n)), WakeSource::Task(_));
            if let Some(place) = timeline.blocked_interval(WaitIndex(n)).filter(|_| wait.in_target && by_thread) {
                prop_assert!(ends.contains(&(wait.tid, place.to)), "{:?}", wait);
            }
        }
    }
}
