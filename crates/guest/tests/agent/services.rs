//! Ports, connections and the machine as a whole.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

use guest_link::client::CallError;
use guest_link::message::Failure;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::harness::{guest, within};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_carries_both_directions_and_half_closes() {
    let (_guest, link) = guest().await;
    for address in ["127.0.0.1:0", "[::1]:0"] {
        let listener = TcpListener::bind(address).unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = std::thread::spawn(move || {
            let mut stream: TcpStream = listener.accept().unwrap().0;
            let mut received = Vec::new();
            // Reads to the end first: only a half-close lets it answer.
            stream.read_to_end(&mut received).unwrap();
            stream.write_all(&received).unwrap();
            stream.write_all(b"bye").unwrap();
        });
        let mut connection = within(link.connect(None, port)).await.unwrap();
        let data: Vec<u8> = (0..500_000_u32).flat_map(u32::to_le_bytes).collect();
        within(connection.write_all(&data)).await.unwrap();
        within(connection.shutdown()).await.unwrap();
        let mut answer = Vec::new();
        within(connection.read_to_end(&mut answer)).await.unwrap();
        server.join().unwrap();
        assert!(answer.strip_suffix(b"bye") == Some(&data[..]));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_port_without_listener_refuses() {
    let (_guest, link) = guest().await;
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let refused = within(link.connect(None, port)).await.err().unwrap();
    assert!(matches!(refused, CallError::Guest(Failure::ConnectionRefused)), "{refused:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_far_end_that_closes_or_resets_ends_the_connection() {
    let (_guest, link) = guest().await;
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut connection = within(link.connect(None, port)).await.unwrap();
    let mut far = listener.accept().unwrap().0;
    far.write_all(b"last words").unwrap();
    drop(far);
    let mut answer = Vec::new();
    within(connection.read_to_end(&mut answer)).await.unwrap();
    assert_eq!(answer, b"last words");
    // Writing to it fails sooner or later, and never hangs.
    within(async { while connection.write_all(&[0; 65_536]).await.is_ok() {} }).await;
    // Dropping our end closes the far one.
    let connection = within(link.connect(None, port)).await.unwrap();
    let mut far = listener.accept().unwrap().0;
    drop(connection);
    assert_eq!(far.read(&mut [0; 8]).unwrap_or(0), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ports_and_metrics_are_true() {
    let (guest, link) = guest().await;
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let ports = within(link.listening_ports()).await.unwrap();
    let ours = ports.iter().find(|found| found.port == port).unwrap();
    assert_eq!((ours.pid, ours.uid), (Some(std::process::id()), 0));
    let metrics = within(link.metrics()).await.unwrap();
    assert!(metrics.memory.total > metrics.memory.available && metrics.cpu.total_us >= metrics.cpu.busy_us);
    within(link.ping()).await.unwrap();
    // Only a machine can be stopped; an ordinary process says so and lives.
    let refused = within(link.shutdown(1)).await.unwrap_err();
    assert!(matches!(refused, CallError::Guest(Failure::Unsupported)));
    assert!(std::path::Path::new(&format!("/proc/{}", guest.pid())).exists());
}
