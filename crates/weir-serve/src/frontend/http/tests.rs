//! Connections over real sockets: clients that go, that do not read, that do not send.

use std::{
    future::pending,
    io,
    net::SocketAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker},
    time::Duration,
};

use hyper::{Request, Response, body::Incoming, rt::Write};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    sync::mpsc::{UnboundedReceiver, unbounded_channel},
    task::JoinHandle,
    time::Instant,
};

use super::{
    Acceptor, Body, ClientIo, Connections, End, Exchange, Patience, Wish, listen, read_body, serve, whole,
};

const LONG: Duration = Duration::from_secs(600);
const PATIENT: Patience = Patience {
    idle: LONG,
    head: LONG,
    stall: LONG,
};

/// A client's socket, and the server's task for it.
async fn connect<F, R>(patience: Patience, answer: F) -> (TcpStream, JoinHandle<End>, Arc<Connections>)
where
    F: Fn(Request<Incoming>, Exchange) -> R + Send + Sync + 'static,
    R: Future<Output = Response<Body>> + Send + 'static,
{
    let (client, server) = pair().await;
    let connections = Arc::<Connections>::default();
    let open = connections.open(1).unwrap();
    (
        client,
        tokio::spawn(async move { serve(server, open, patience, answer).await }),
        connections,
    )
}

async fn pair() -> (TcpStream, TcpStream) {
    let listener = listen(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    let addr = listener.local_addr().unwrap();
    let mut acceptor = Acceptor::new(listener);
    let (client, server) = tokio::join!(TcpStream::connect(addr), acceptor.accept(|| {}));
    (client.unwrap(), server)
}

async fn hello(_: Request<Incoming>, exchange: Exchange) -> Response<Body> {
    Response::new(whole("hello").of(exchange))
}

async fn all(client: &mut TcpStream) -> String {
    let mut out = Vec::new();
    client.read_to_end(&mut out).await.unwrap();
    String::from_utf8(out).unwrap()
}

/// Says when it is dropped.
struct Dropped(tokio::sync::mpsc::UnboundedSender<&'static str>);

impl Drop for Dropped {
    fn drop(&mut self) {
        let _ = self.0.send("dropped");
    }
}

/// A connection whose request is being answered, for ever.
async fn hanging() -> (TcpStream, UnboundedReceiver<&'static str>, JoinHandle<End>) {
    let (sender, mut events) = unbounded_channel();
    let answer = move |_: Request<Incoming>, exchange: Exchange| {
        let dropped = Dropped(sender.clone());
        async move {
            let _ = dropped.0.send("called");
            let _held = (dropped, exchange);
            pending::<Response<Body>>().await
        }
    };
    let (mut client, task, _) = connect(PATIENT, answer).await;
    client
        .write_all(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n{}")
        .await
        .unwrap();
    assert_eq!(events.recv().await, Some("called"));
    (client, events, task)
}

#[tokio::test]
async fn a_client_that_closes_ends_the_handler() {
    let (client, mut events, task) = hanging().await;
    drop(client);
    assert_eq!(events.recv().await, Some("dropped"));
    task.await.unwrap();
}

#[tokio::test]
async fn a_client_that_half_closes_ends_the_handler() {
    let (mut client, mut events, task) = hanging().await;
    client.shutdown().await.unwrap();
    assert_eq!(events.recv().await, Some("dropped"));
    task.await.unwrap();
}

#[tokio::test]
async fn a_client_that_resets_ends_the_handler() {
    let (client, mut events, task) = hanging().await;
    client.set_zero_linger().unwrap();
    drop(client);
    assert_eq!(events.recv().await, Some("dropped"));
    task.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_client_that_sends_nothing_is_closed_at_the_idle_limit() {
    let began = Instant::now();
    let patience = Patience {
        idle: Duration::from_secs(75),
        ..PATIENT
    };
    let (mut client, task, _) = connect(patience, hello).await;
    assert_eq!(all(&mut client).await, "");
    assert_eq!(task.await.unwrap(), End::Closed);
    assert!(
        (75..80).contains(&began.elapsed().as_secs()),
        "{:?}",
        began.elapsed()
    );
}

#[tokio::test(start_paused = true)]
async fn a_client_that_sends_half_a_head_is_closed_at_the_head_limit() {
    let began = Instant::now();
    let patience = Patience {
        head: Duration::from_secs(10),
        ..PATIENT
    };
    let (mut client, task, _) = connect(patience, hello).await;
    client.write_all(b"GET / HTTP/1.1\r\nhost:").await.unwrap();
    all(&mut client).await;
    task.await.unwrap();
    assert!(
        (10..15).contains(&began.elapsed().as_secs()),
        "{:?}",
        began.elapsed()
    );
}

#[tokio::test(start_paused = true)]
async fn after_an_answer_the_idle_limit_counts_again() {
    let patience = Patience {
        idle: Duration::from_secs(75),
        head: Duration::from_secs(10),
        ..PATIENT
    };
    let (mut client, task, _) = connect(patience, hello).await;
    client
        .write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
        .await
        .unwrap();
    let mut answer = vec![0; 4096];
    let read = client.read(&mut answer).await.unwrap();
    assert!(answer[..read].starts_with(b"HTTP/1.1 200"));
    let began = Instant::now();
    all(&mut client).await;
    task.await.unwrap();
    assert!(
        (74..80).contains(&began.elapsed().as_secs()),
        "{:?}",
        began.elapsed()
    );
}

#[tokio::test(start_paused = true)]
async fn a_client_that_does_not_read_is_closed_at_the_stall_limit() {
    let patience = Patience {
        stall: Duration::from_secs(30),
        ..PATIENT
    };
    let large = |_: Request<Incoming>, exchange: Exchange| async move {
        Response::new(whole(vec![b'x'; 64 << 20]).of(exchange))
    };
    let (mut client, task, connections) = connect(patience, large).await;
    let began = Instant::now();
    client
        .write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
        .await
        .unwrap();
    assert_eq!(task.await.unwrap(), End::Stalled);
    assert!(
        (30..35).contains(&began.elapsed().as_secs()),
        "{:?}",
        began.elapsed()
    );
    assert_eq!(connections.len(), 0);
}

/// Writes until the socket takes no more; how the last write ended.
fn fill(io: &mut ClientIo) -> Poll<io::Result<usize>> {
    let mut cx = Context::from_waker(Waker::noop());
    loop {
        match Pin::new(&mut *io).poll_write(&mut cx, &[b'x'; 8192]) {
            Poll::Ready(Ok(_)) => {}
            ended => return ended,
        }
    }
}

#[tokio::test(start_paused = true)]
async fn any_byte_that_is_taken_ends_a_stall() {
    let (mut client, server) = pair().await;
    let connections = Arc::<Connections>::default();
    let open = connections.open(1).unwrap();
    let patience = Patience {
        stall: Duration::from_secs(30),
        ..PATIENT
    };
    let mut io = ClientIo::new(server, Arc::clone(&open.connection), patience);
    for _ in 0..3 {
        assert!(fill(&mut io).is_pending());
        tokio::time::advance(Duration::from_secs(29)).await;
        assert!(fill(&mut io).is_pending());
        let mut taken = vec![0; 64 << 10];
        loop {
            tokio::select! {
                writable = io.socket().writable() => break writable.unwrap(),
                read = client.read(&mut taken) => assert!(read.unwrap() > 0),
            }
        }
    }
    assert!(fill(&mut io).is_pending());
    tokio::time::advance(Duration::from_secs(31)).await;
    let Poll::Ready(Err(error)) = fill(&mut io) else {
        panic!("no error")
    };
    assert_eq!(error.kind(), io::ErrorKind::TimedOut);
}

#[tokio::test]
async fn an_idle_connection_closes_when_asked_and_a_busy_one_after_its_answer() {
    let (mut idle, idle_task, idle_connections) = connect(PATIENT, hello).await;
    idle.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
        .await
        .unwrap();
    idle.readable().await.unwrap();
    idle_connections.ask_all(Wish::Finish);
    assert!(all(&mut idle).await.ends_with("hello"));
    assert_eq!(idle_task.await.unwrap(), End::Closed);

    let (release, released) = tokio::sync::watch::channel(false);
    let (called, mut calls) = unbounded_channel();
    let slow = move |_: Request<Incoming>, exchange: Exchange| {
        let (mut released, called) = (released.clone(), called.clone());
        async move {
            called.send(()).unwrap();
            released.wait_for(|released| *released).await.unwrap();
            Response::new(whole("slow").of(exchange))
        }
    };
    let (mut busy, busy_task, busy_connections) = connect(PATIENT, slow).await;
    busy.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
        .await
        .unwrap();
    calls.recv().await.unwrap();
    busy_connections.ask_all(Wish::Finish);
    release.send(true).unwrap();
    assert!(all(&mut busy).await.ends_with("slow"));
    assert_eq!(busy_task.await.unwrap(), End::Closed);
    assert!(busy_connections.served(Instant::now()).await);
}

#[tokio::test]
async fn a_connection_that_is_aborted_ends_at_once() {
    let (sender, mut events) = unbounded_channel();
    let hang = move |_: Request<Incoming>, exchange: Exchange| {
        sender.send(()).unwrap();
        async move {
            let _held = exchange;
            pending::<Response<Body>>().await
        }
    };
    let (mut client, task, connections) = connect(PATIENT, hang).await;
    client
        .write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
        .await
        .unwrap();
    events.recv().await.unwrap();
    assert!(!connections.served(Instant::now()).await);
    connections.ask_all(Wish::Abort);
    assert_eq!(all(&mut client).await, "");
    task.await.unwrap();
    assert!(connections.all_ended(Instant::now()).await);
}

async fn limited(request: Request<Incoming>, exchange: Exchange) -> Response<Body> {
    let status = match read_body(request, 1 << 20, LONG, &exchange).await {
        Ok(body) => format!("read {}", body.len()),
        Err(error) => error.message().to_owned(),
    };
    Response::new(whole(status).of(exchange))
}

#[tokio::test]
async fn a_client_that_sends_too_much_still_gets_its_answer() {
    for announced in ["content-length: 34603008", "transfer-encoding: chunked"] {
        let (mut client, task, _) = connect(PATIENT, limited).await;
        let head = format!("POST / HTTP/1.1\r\nhost: x\r\n{announced}\r\n\r\n");
        client.write_all(head.as_bytes()).await.unwrap();
        // As clients do that write the whole body before they read.
        for _ in 0..33 {
            if announced.starts_with("transfer") {
                client.write_all(b"100000\r\n").await.unwrap();
            }
            client.write_all(&vec![b'x'; 1 << 20]).await.unwrap();
            if announced.starts_with("transfer") {
                client.write_all(b"\r\n").await.unwrap();
            }
        }
        let answer = all(&mut client).await;
        assert!(
            answer.ends_with("the request body is over the limit of 1048576 bytes"),
            "{answer}"
        );
        drop(client);
        task.await.unwrap();
    }
}

#[tokio::test]
async fn a_body_in_pieces_is_read_whole() {
    let (mut client, _task, _) = connect(PATIENT, limited).await;
    client
        .write_all(b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n")
        .await
        .unwrap();
    for _ in 0..100 {
        client.write_all(b"3\r\nabc\r\n").await.unwrap();
        tokio::task::yield_now().await;
    }
    client.write_all(b"0\r\n\r\n").await.unwrap();
    client.shutdown().await.unwrap();
    assert!(all(&mut client).await.ends_with("read 300"));
}
