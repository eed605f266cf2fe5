//! What a process sends is taken only when it is what it should be.

use std::io::{IoSlice, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use memory::pages::{Handover, HandoverError, PageServer, ServeError, Trace};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};

use crate::source::Source;
use crate::{PAGE, PAGE_BYTES, hand_over, memory_of};

const GOOD: &str = r#"[{"base_host_virt_addr":4096,"size":8192,"offset":0,"page_size":4096}]"#;

fn send(stream: &UnixStream, text: &str, descriptors: &[BorrowedFd<'_>]) {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    assert!(ancillary.push(SendAncillaryMessage::ScmRights(descriptors)));
    rustix::net::sendmsg(stream, &[IoSlice::new(text.as_bytes())], &mut ancillary, SendFlags::empty())
        .unwrap();
}

async fn received(ours: UnixStream, length: u64) -> Result<Handover, HandoverError> {
    ours.set_nonblocking(true).unwrap();
    Handover::receive(&tokio::net::UnixStream::from_std(ours).unwrap(), length).await
}

async fn check(text: &str, descriptors: usize, length: u64) -> HandoverError {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let file = tempfile::tempfile().unwrap();
    match descriptors {
        0 => (&theirs).write_all(text.as_bytes()).unwrap(),
        count => send(&theirs, text, &vec![file.as_fd(); count]),
    }
    // The end of the message must not be needed to understand it, nor to refuse it.
    let result = received(ours, length).await;
    drop(theirs);
    result.unwrap_err()
}

#[tokio::test]
async fn what_is_not_a_handover_is_refused() {
    assert!(matches!(check(GOOD, 0, 8192).await, HandoverError::Descriptors { count: 0 }));
    assert!(matches!(check(GOOD, 2, 8192).await, HandoverError::Descriptors { count: 2 }));
    assert!(matches!(check(GOOD, 8, 8192).await, HandoverError::Descriptors { .. }));
    assert!(
        matches!(check(GOOD, 1, 8192).await, HandoverError::Descriptor(_)),
        "a file is not a userfaultfd"
    );
    assert!(matches!(check(GOOD, 1, 4096).await, HandoverError::Regions(_)));
    assert!(matches!(check("[]", 1, 0).await, HandoverError::Message(_)));
    assert!(matches!(check("nonsense", 1, 8192).await, HandoverError::Message(_)));
    assert!(matches!(check(&format!("{GOOD}x"), 1, 8192).await, HandoverError::Message(_)));
    assert!(matches!(check(&" ".repeat(9000), 1, 8192).await, HandoverError::TooLong));
    let overlapping =
        GOOD.replace("}]", r#"},{"base_host_virt_addr":8192,"size":8192,"offset":8192,"page_size":4096}]"#);
    assert!(matches!(check(&overlapping, 1, 16384).await, HandoverError::Message(_)));
}

#[tokio::test]
async fn a_message_that_ends_early_is_refused() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    (&theirs).write_all(&GOOD.as_bytes()[..20]).unwrap();
    drop(theirs);
    assert!(matches!(received(ours, 8192).await, Err(HandoverError::Closed)));
}

#[tokio::test]
async fn a_message_may_come_in_pieces() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let file = tempfile::tempfile().unwrap();
    let (first, rest) = GOOD.split_at(30);
    send(&theirs, first, &[file.as_fd()]);
    (&theirs).write_all(rest.as_bytes()).unwrap();
    // All of it was understood: only the kind of descriptor is wrong.
    assert!(matches!(received(ours, 8192).await, Err(HandoverError::Descriptor(_))));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_memory_is_not_served() {
    let (_directory, _guest, handover) = hand_over(&[16, 16], false).await;
    assert_eq!(handover.regions().length(), 32 * PAGE_BYTES);
    let source = Source::new(&memory_of(31)[..31 * PAGE]);
    let refused = PageServer::start(handover, source, Trace::default());
    assert!(matches!(refused, Err(ServeError::Regions(_))), "{refused:?}");
}
