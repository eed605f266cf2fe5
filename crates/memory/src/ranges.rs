//! Lists of ranges: ascending, none empty, apart from each other.

use std::ops::Range;

/// Bytes in a range.
pub(crate) fn length(range: &Range<u64>) -> u64 {
    range.end - range.start
}

/// What is in either list.
pub(crate) fn union(one: &[Range<u64>], other: &[Range<u64>]) -> Vec<Range<u64>> {
    let mut all = [one, other].concat();
    if !one.is_empty() && !other.is_empty() {
        normalize(&mut all);
    }
    all
}

/// Makes a list of ranges in any order ascending and apart from each other.
pub(crate) fn normalize(ranges: &mut Vec<Range<u64>>) {
    ranges.sort_unstable_by_key(|range| range.start);
    ranges.dedup_by(|next, last| {
        let touch = next.start <= last.end;
        if touch {
            last.end = last.end.max(next.end);
        }
        touch
    });
}

/// What of `all` is not in `without`.
pub(crate) fn difference(all: &[Range<u64>], without: &[Range<u64>]) -> Vec<Range<u64>> {
    let mut rest = Vec::new();
    for range in all {
        let mut at = range.start;
        let first = without.partition_point(|other| other.end <= range.start);
        for other in without[first..].iter().take_while(|other| other.start < range.end) {
            if at < other.start {
                rest.push(at..other.start);
            }
            at = other.end;
        }
        if at < range.end {
            rest.push(at..range.end);
        }
    }
    rest
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn members(ranges: &[Range<u64>]) -> Vec<u64> {
        ranges.iter().cloned().flatten().collect()
    }

    fn lists() -> impl Strategy<Value = Vec<Range<u64>>> {
        proptest::collection::vec((1_u64..5, 1_u64..5), 0..12).prop_map(|steps| {
            let mut at = 0;
            let step = |(gap, length): (u64, u64)| {
                at += gap + length;
                at - length..at
            };
            steps.into_iter().map(step).collect()
        })
    }

    proptest! {
        #[test]
        fn they_are_what_sets_are(one in lists(), other in lists()) {
            let (all, rest) = (union(&one, &other), difference(&one, &other));
            let mut either = members(&one);
            either.extend(members(&other));
            either.sort_unstable();
            either.dedup();
            prop_assert_eq!(members(&all), either);
            let others = members(&other);
            let without: Vec<u64> = members(&one).into_iter().filter(|at| !others.contains(at)).collect();
            prop_assert_eq!(members(&rest), without);
            for list in [all, rest] {
                prop_assert!(list.iter().all(|range| range.start < range.end));
                prop_assert!(list.windows(2).all(|pair| pair[0].end < pair[1].start));
            }
        }
    }
}
