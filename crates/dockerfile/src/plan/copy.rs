//! Plans `COPY` and `ADD`.

use super::stage::State;
use super::{CopyStep, InlineFile};
use crate::error::Problem;
use crate::expand::Reading;
use crate::glob::Glob;
use crate::instruction::Copy;
use crate::limits::INLINE_BYTES_MAX;
use crate::path;

/// How sources that are not files begin.
const REMOTE: [&str; 5] = ["http://", "https://", "git://", "ssh://", "git@"];

impl State<'_> {
    pub(super) fn copy(&self, copy: &Copy) -> Result<CopyStep, Problem> {
        let origin = self.origin(copy.from.as_deref())?;
        let word = |text: &str| {
            self.expand(text).map_err(|problem| match problem.hint {
                Some(_) => problem,
                None => problem.hint("paths with spaces need the form `COPY [\"source\", \"destination\"]`"),
            })
        };
        let mut sources = Vec::new();
        for text in &copy.sources {
            sources.push(source(&word(text)?)?);
        }
        let mut inline = Vec::new();
        for heredoc in &copy.inline {
            let mut content = heredoc.text();
            if heredoc.expands {
                let reading =
                    Reading { quotes_plain: true, bytes_max: INLINE_BYTES_MAX, ..Reading::words('\\') };
                content = self.expand_as(reading, &content)?;
            }
            inline.push(InlineFile { name: heredoc.name.clone(), content });
        }
        let wanted = word(&copy.destination)?;
        if wanted.is_empty() {
            return Err(Problem::new("the destination is empty with its variables put in"));
        }
        let destination = path::destination(&self.config.working_dir, &wanted);
        if sources.len() + inline.len() > 1 && !destination.ends_with('/') {
            let hint = format!("write it as `{wanted}/`");
            return Err(Problem::new("several sources need a directory as destination").hint(hint));
        }
        let owner = match &copy.owner {
            Some(text) => Some(owner(&self.expand(text)?)?),
            None => None,
        };
        let mode = match &copy.mode {
            Some(text) => Some(mode(&self.expand(text)?)?),
            None => None,
        };
        Ok(CopyStep { origin, sources, inline, destination, owner, mode, extracts: copy.extracts })
    }
}

fn source(text: &str) -> Result<String, Problem> {
    if REMOTE.iter().any(|start| text.starts_with(start)) {
        return Err(Problem::new(format!("`{text}` would have to be downloaded, which is not supported"))
            .hint("download it in a RUN step, for example with curl, and check its digest there"));
    }
    if text.is_empty() {
        return Err(Problem::new("a source is empty with its variables put in"));
    }
    let path = path::source(text).ok_or_else(|| {
        Problem::new(format!("`{text}` lies outside of what can be copied"))
            .hint("build with a context that holds it")
    })?;
    for part in path.split('/') {
        Glob::parse(part).map_err(|_| Problem::new(format!("`{text}` is not a good pattern")))?;
    }
    Ok(path)
}

fn owner(text: &str) -> Result<String, Problem> {
    let parts: Vec<&str> = text.split(':').collect();
    let plain = |part: &&str| !part.is_empty() && !part.contains(char::is_whitespace);
    if parts.len() > 2 || !parts.iter().all(plain) {
        return Err(Problem::new(format!("`--chown={text}` is not an owner"))
            .hint("write `user`, `user:group`, `uid` or `uid:gid`"));
    }
    Ok(text.to_owned())
}

fn mode(text: &str) -> Result<u32, Problem> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let mode = u32::from_str_radix(text, 8).ok().filter(|mode| digits && *mode <= 0o7777);
    mode.ok_or_else(|| {
        Problem::new(format!("`--chmod={text}` is not a mode"))
            .hint("write it in octal, such as `755` or `0644`")
    })
}
