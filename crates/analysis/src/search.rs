//! Looking something up where the last thing was.

/// How many of `0..len` come before, where `before` holds for some first ones and for none after
/// them. It is looked for around `near` first, in steps that double: who goes through time in order
/// finds it within a few steps, wherever the list's middle may be.
pub(crate) fn partition_near(len: usize, near: usize, before: impl Fn(usize) -> bool) -> usize {
    let near = near.min(len);
    let (mut low, mut high, mut step) = (near, near, 1_usize);
    while high < len && before(high) {
        low = high + 1;
        high = high.saturating_add(step);
        step = step.saturating_mul(2);
    }
    step = 1;
    while low > 0 && !before(low - 1) {
        high = low - 1;
        low = low.saturating_sub(step);
        step = step.saturating_mul(2);
    }
    high = high.min(len);
    while low < high {
        let middle = low + (high - low) / 2;
        if before(middle) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low
}

#[cfg(test)]
mod tests {
    use super::partition_near;

    #[test]
    fn it_is_found_from_wherever_the_search_begins() {
        for len in 0..20 {
            for border in 0..=len {
                for near in (0..25).chain([usize::MAX]) {
                    assert_eq!(partition_near(len, near, |n| n < border), border);
                }
            }
        }
    }
}
