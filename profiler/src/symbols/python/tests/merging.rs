//! Stacks whose truth is known are taken apart, cut, and merged again.

use proptest::prelude::*;

use super::super::{
    interpreter::Part,
    merge::{ChainEnd, Doubt, Merged, NativeEnd, NativeFrame, merge},
};

/// How a version marks the runs of its frames.
#[derive(Clone, Copy, Debug)]
enum Marks {
    EachFrame,
    LastFrame,
    Shim,
}

/// A stack as it is, leaf first: calls of other functions, and the frames that each call of the
/// evaluating function runs.
#[derive(Clone, Debug)]
enum Call {
    Other,
    Run(usize),
}

#[derive(Debug, Default)]
struct Truth {
    native: Vec<NativeFrame>,
    python: Vec<Part>,
    merged: Vec<Merged>,
}

impl Truth {
    fn from_calls(calls: &[Call], marks: Marks) -> Self {
        let mut truth = Self::default();
        for call in calls {
            let Call::Run(frames) = *call else {
                truth.merged.push(Merged::Native(truth.native.len()));
                truth.native.push(NativeFrame::Other);
                continue;
            };
            truth.native.push(NativeFrame::Evaluates);
            let frames = match marks {
                Marks::EachFrame => 1,
                Marks::LastFrame => frames.max(1),
                Marks::Shim => frames,
            };
            for frame in 1..=frames {
                let is_last = frame == frames && !matches!(marks, Marks::Shim);
                truth.merged.push(Merged::Python(truth.python.len()));
                truth.python.push(if is_last { Part::Last } else { Part::Inner });
            }
            if matches!(marks, Marks::Shim) {
                truth.python.push(Part::Shim);
            }
        }
        truth
    }

    /// Whether what was merged is in the true order: nothing twice, nothing where it is not.
    fn holds(&self, merged: &[Merged]) -> bool {
        let mut truth = self.merged.iter();
        let mut frames = merged.iter().filter(|frame| match frame {
            Merged::Native(index) => self.native[*index] == NativeFrame::Other,
            Merged::Python(_) => true,
            Merged::Doubt(_) => false,
        });
        frames.all(|frame| truth.any(|other| other == frame))
    }
}

fn truths() -> impl Strategy<Value = Truth> {
    let call = prop_oneof![Just(Call::Other), (0..4_usize).prop_map(Call::Run)];
    let marks = prop_oneof![Just(Marks::EachFrame), Just(Marks::LastFrame), Just(Marks::Shim)];
    (prop::collection::vec(call, 0..20), marks)
        .prop_map(|(calls, marks)| Truth::from_calls(&calls, marks))
}

fn shown(merged: &[Merged]) -> usize {
    merged.iter().filter(|frame| matches!(frame, Merged::Python(_))).count()
}

proptest! {
    #[test]
    fn two_whole_stacks_become_the_one_that_they_are_of(truth in truths()) {
        let Truth { native, python, merged } = &truth;
        for end in [NativeEnd::Entry, NativeEnd::CutShort, NativeEnd::Doubtful] {
            prop_assert_eq!(&merge(native, end, python, ChainEnd::First), merged);
        }
    }

    #[test]
    fn what_is_left_of_cut_stacks_is_in_order_and_all_there(
        truth in truths(),
        native_cut in any::<prop::sample::Index>(),
        python_cut in any::<prop::sample::Index>(),
    ) {
        let Truth { native, python, .. } = &truth;
        let native = &native[..native_cut.index(native.len() + 1)];
        let python = &python[..python_cut.index(python.len() + 1)];
        let native_end = match native.len() == truth.native.len() {
            true => NativeEnd::Entry,
            false => NativeEnd::CutShort,
        };
        let chain_end = match python.len() == truth.python.len() {
            true => ChainEnd::First,
            false => ChainEnd::CutShort,
        };
        let merged = merge(native, native_end, python, chain_end);
        prop_assert!(truth.holds(&merged), "{:?}", merged);
        prop_assert!(!merged.contains(&Merged::Doubt(Doubt::Unplaced)), "{:?}", merged);
        let frames = python.iter().filter(|&&part| part != Part::Shim).count();
        prop_assert_eq!(shown(&merged), frames);
        let is_marked = merged.contains(&Merged::Doubt(Doubt::PythonMissing));
        prop_assert_eq!(is_marked, chain_end == ChainEnd::CutShort);
        // A frame behind ones that are missing is behind the mark for them.
        let mark = merged.iter().position(|frame| *frame == Merged::Doubt(Doubt::NativeMissing));
        if let Some(mark) = mark {
            prop_assert_eq!(native_end, NativeEnd::CutShort);
            let is_native = |frame: &Merged| matches!(frame, Merged::Native(_));
            prop_assert!(!merged[mark..].iter().any(is_native));
        }
    }

    #[test]
    fn frames_that_fit_nowhere_are_left_out_and_that_is_said(
        truth in truths(),
        at in any::<prop::sample::Index>(),
        end in prop_oneof![Just(NativeEnd::Entry), Just(NativeEnd::Doubtful)],
    ) {
        // One call more or less than there are runs: another thread's frames, or code that was not
        // recognised.
        let mut native = truth.native.clone();
        if !native.is_empty() {
            let frame = at.get_mut(&mut native);
            *frame = match frame {
                NativeFrame::Other => NativeFrame::Evaluates,
                NativeFrame::Evaluates => NativeFrame::Other,
            };
            let merged = merge(&native, end, &truth.python, ChainEnd::First);
            let natives = (0..native.len()).map(Merged::Native);
            let expected: Vec<_> = natives.chain([Merged::Doubt(Doubt::Unplaced)]).collect();
            prop_assert_eq!(merged, expected);
        }
    }

    #[test]
    fn frames_missing_anywhere_never_move_others(
        truth in truths(),
        kept in prop::collection::vec(any::<bool>(), 20),
    ) {
        let left = truth.native.iter().zip(&kept).filter(|(_, kept)| **kept);
        let native: Vec<_> = left.map(|(frame, _)| *frame).collect();
        let indices: Vec<_> = (0..truth.native.len()).filter(|&index| kept[index]).collect();
        let merged = merge(&native, NativeEnd::Doubtful, &truth.python, ChainEnd::First);
        let merged: Vec<_> = merged
            .into_iter()
            .map(|frame| match frame {
                Merged::Native(index) => Merged::Native(indices[index]),
                other => other,
            })
            .collect();
        prop_assert!(truth.holds(&merged), "{:?}", merged);
    }
}

#[test]
fn a_chain_that_ends_within_a_run_is_not_all() {
    let native = [NativeFrame::Other, NativeFrame::Evaluates, NativeFrame::Other];
    let merged = merge(&native, NativeEnd::Entry, &[Part::Inner], ChainEnd::First);
    let missing = Merged::Doubt(Doubt::PythonMissing);
    assert_eq!(merged, [Merged::Native(0), Merged::Python(0), missing, Merged::Native(2)]);
}
