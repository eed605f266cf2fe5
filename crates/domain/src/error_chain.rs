//! An error as operators see it: with what lies behind it.

use std::error::Error;
use std::fmt;

/// Shows an error and its causes in one line. Errors say what failed; why is in their sources.
#[derive(Debug, Clone, Copy)]
pub struct ErrorChain<'a>(pub &'a (dyn Error + 'static));

impl fmt::Display for ErrorChain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)?;
        let mut cause = self.0.source();
        while let Some(error) = cause {
            write!(f, ": {error}")?;
            cause = error.source();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("{said}")]
    struct Said {
        said: &'static str,
        source: Option<Box<Said>>,
    }

    #[test]
    fn causes_follow_what_they_caused() {
        let link = |said, source| Some(Box::new(Said { said, source }));
        let alone = Said { said: "could not write", source: None };
        assert_eq!(ErrorChain(&alone).to_string(), "could not write");
        let all = Said { source: link("3 tries failed", link("connection refused", None)), ..alone };
        assert_eq!(ErrorChain(&all).to_string(), "could not write: 3 tries failed: connection refused");
    }
}
