//! Ids as tables have room for them: beginnings that name one thing only.

/// Fewest characters.
const LENGTH_MIN: usize = 8;

/// The length from which on the beginnings of these ids all differ.
pub(crate) fn length<'a>(ids: impl IntoIterator<Item = &'a str>) -> usize {
    let mut ids: Vec<&str> = ids.into_iter().collect();
    ids.sort_unstable();
    ids.dedup();
    let shared =
        |pair: &[&str]| pair[0].bytes().zip(pair[1].bytes()).take_while(|(one, other)| one == other).count();
    ids.windows(2).map(|pair| shared(pair) + 1).max().unwrap_or(0).max(LENGTH_MIN)
}

/// The length at which a table shows these ids: whole ones where that is asked for.
pub(crate) fn width<'a>(no_trunc: bool, ids: impl IntoIterator<Item = &'a str>) -> usize {
    if no_trunc { usize::MAX } else { length(ids) }
}

/// The beginning of an id.
pub(crate) fn short(id: &str, length: usize) -> &str {
    id.get(..length).unwrap_or(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn beginnings_differ() {
        assert_eq!(length([]), 8);
        assert_eq!(length(["abcdefghijkl"]), 8);
        assert_eq!(length(["abcdefghijkl", "b"]), 8);
        assert_eq!(length(["abcdefghijxx", "b", "abcdefghijkl"]), 11);
        assert_eq!(length(["abcdefghijkl", "abcdefghijkl"]), 8);
        assert_eq!((width(true, ["abcdefghijkl"]), width(false, ["abcdefghijkl"])), (usize::MAX, 8));
        assert_eq!((short("abcdefghijkl", 8), short("abc", 8)), ("abcdefgh", "abc"));
    }
}
