//! What a build says while it works.

/// Takes the lines of a build. Called from many threads, and quickly: whoever must wait keeps a queue.
pub trait BuildLog: Send + Sync {
    /// A whole line without its newline, of bounded length.
    fn line(&self, line: &str);
}

impl<F: Fn(&str) + Send + Sync> BuildLog for F {
    fn line(&self, line: &str) {
        self(line);
    }
}
