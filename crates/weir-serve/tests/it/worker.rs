//! The worker host over real sockets: what a frontend's node sees of it.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::{Instant, timeout},
};
use weir_engine::{
    Engine, EngineStats, Fault, FaultKind, FinishReason, Refusal, Request, Sampling, ScriptStep, Usage,
    mock::{MockConfig, MockEngine},
    scripted::{ScriptedConfig, ScriptedEngine},
};
use weir_net::{Anchor, CallError, CallOptions, Node, NodeConfig, Peer, StreamErrorKind};
use weir_serve::{
    envelope::{ENGINE_FAILED, GENERATE, Generate, Item, STATS},
    worker::{MetricsServer, WorkerHost},
};

/// Longest a test waits for anything.
const PATIENCE: Duration = Duration::from_secs(20);

/// A worker process with a mock and a scripted worker, and a frontend's node with a link to it.
struct Rig {
    host: WorkerHost,
    node: Node,
    peer: Peer,
}

impl Rig {
    async fn start() -> Self {
        let mock = MockConfig {
            speedup: f64::INFINITY,
            ..MockConfig::default()
        };
        let engines: Vec<Arc<dyn Engine>> = vec![
            Arc::new(MockEngine::start(&mock)),
            Arc::new(ScriptedEngine::start(&ScriptedConfig::default())),
        ];
        let host = WorkerHost::start("w0", NodeConfig::default(), engines)
            .await
            .expect("a host");
        let node = Node::bind(NodeConfig::default()).await.expect("a node");
        let peer = node.connect(host.node().addr()).await.expect("a link");
        peer.wait_for_handler(GENERATE).await.expect("the handler");
        Self { host, node, peer }
    }

    /// Hands a request to worker `worker`.
    async fn generate(&self, worker: u16, request: Request) -> Result<Anchor, Refusal> {
        let mut anchor = self.node.anchor();
        let ticket = anchor.mint(&self.peer).expect("a slot");
        self.call(
            Generate {
                ticket,
                worker,
                request,
            }
            .encode(),
        )
        .await
        .map(|()| anchor)
    }

    async fn call(&self, body: Bytes) -> Result<(), Refusal> {
        match self.peer.call(GENERATE, body, CallOptions::default()).await {
            Ok(reply) => {
                assert!(reply.is_empty());
                Ok(())
            }
            Err(CallError::Failed(refusal)) => Err(serde_json::from_str(&refusal).expect("a refusal")),
            Err(error) => panic!("{error}"),
        }
    }

    async fn stats(&self) -> Vec<EngineStats> {
        let reply = self
            .peer
            .call(STATS, Bytes::new(), CallOptions::default())
            .await
            .expect("stats");
        serde_json::from_slice(&reply).expect("json")
    }

    /// Asks for the gauges until no request runs or waits.
    async fn idle(&self) {
        let idle = async {
            while self
                .stats()
                .await
                .iter()
                .any(|stats| stats.running + stats.waiting > 0)
            {}
        };
        timeout(PATIENCE, idle).await.expect("the engines become idle");
    }

    fn metrics(&self) -> String {
        let mut text = String::new();
        self.host.render_metrics(&mut text);
        text
    }
}

fn request(model: &str, max_tokens: Option<u32>) -> Request {
    Request {
        id: "r".to_owned(),
        model: model.to_owned(),
        prompt: vec![1, 2, 3],
        max_tokens,
        min_tokens: 0,
        ignore_eos: false,
        stop_token_ids: Vec::new(),
        sampling: Sampling::default(),
        choice: 0,
        attempt: 0,
        script: None,
        fault: None,
    }
}

/// A scripted request for the letters of `text`.
fn script(text: &str, fault: Option<(u32, FaultKind)>) -> Request {
    let step = |byte: u8| ScriptStep {
        delay_ms: 0,
        bytes_hex: format!("{byte:02x}"),
    };
    Request {
        script: Some(text.bytes().map(step).collect()),
        fault: fault.map(|(at, kind)| Fault { at, kind }),
        ..request("scripted", None)
    }
}

/// A stream as its consumer saw it.
#[derive(Debug, Default, PartialEq, Eq)]
struct Seen {
    tokens: usize,
    bytes: Vec<u8>,
    finish: Option<(FinishReason, u32)>,
    error: Option<StreamErrorKind>,
}

impl Seen {
    fn add(&mut self, record: &Bytes) {
        assert_eq!(self.finish, None, "a record after the finish");
        match Item::decode(record).expect("an item") {
            Item::Token { bytes, .. } => {
                self.tokens += 1;
                self.bytes.extend_from_slice(bytes);
            }
            Item::Finish { reason, usage } => {
                let Usage {
                    prompt_tokens,
                    cached_tokens,
                    completion_tokens,
                } = usage;
                assert_eq!((prompt_tokens, cached_tokens), (3, 0));
                self.finish = Some((reason, completion_tokens));
            }
        }
    }
}

/// Reads a stream to its end.
async fn read(mut anchor: Anchor) -> Seen {
    let mut seen = Seen::default();
    let reading = async {
        loop {
            match anchor.next().await {
                Ok(Some(record)) => seen.add(&record),
                Ok(None) => return,
                Err(error) => return seen.error = Some(error.kind),
            }
        }
    };
    timeout(PATIENCE, reading).await.expect("the stream ends");
    seen
}

#[tokio::test]
async fn a_request_is_answered_by_the_worker_it_names() {
    let rig = Rig::start().await;
    let mock = read(rig.generate(0, request("mock", Some(500))).await.unwrap()).await;
    assert_eq!(
        (mock.tokens, mock.finish, mock.error),
        (500, Some((FinishReason::Length, 500)), None)
    );
    let scripted = read(rig.generate(1, script("weir", None)).await.unwrap()).await;
    assert_eq!(
        (scripted.bytes.as_slice(), scripted.finish),
        (b"weir".as_slice(), Some((FinishReason::Stop, 4)))
    );
    let counts: Vec<_> = rig
        .stats()
        .await
        .iter()
        .map(|stats| (stats.requests, stats.tokens))
        .collect();
    assert_eq!(counts, [(1, 500), (1, 4)]);
}

#[tokio::test]
async fn what_a_worker_cannot_take_is_refused_and_the_next_is_served() {
    let rig = Rig::start().await;
    let too_long = Request {
        prompt: vec![1; 20_000],
        ..request("mock", None)
    };
    let refuse = script("x", Some((0, FaultKind::Refuse)));
    for (worker, request, retry) in [
        (7, request("mock", None), true),
        (1, refuse, true),
        (0, request("other", None), false),
        (0, too_long, false),
        (1, request("scripted", None), false),
    ] {
        let refusal = rig.generate(worker, request).await.map(|_| ()).unwrap_err();
        assert_eq!(matches!(refusal, Refusal::Busy(_)), retry, "{refusal}");
    }
    for body in [
        Bytes::new(),
        Bytes::from_static(b"\xff\xff"),
        Bytes::from_static(b"\0\0\0\0{}"),
    ] {
        assert!(matches!(rig.call(body).await, Err(Refusal::Invalid(_))));
    }
    assert_eq!(
        read(rig.generate(1, script("ok", None)).await.unwrap())
            .await
            .bytes,
        b"ok"
    );
    assert_eq!(rig.host.node().metrics().live_slots, 0);
}

#[tokio::test]
async fn a_failing_engine_fails_the_stream_after_its_tokens() {
    let rig = Rig::start().await;
    for kind in [FaultKind::Error, FaultKind::Refuse] {
        let seen = read(rig.generate(1, script("weir", Some((2, kind)))).await.unwrap()).await;
        let failed = matches!(
            seen.error,
            Some(StreamErrorKind::Failed {
                code: ENGINE_FAILED,
                ..
            })
        );
        assert!(failed && seen.bytes == b"we" && seen.finish.is_none(), "{seen:?}");
    }
}

#[tokio::test]
async fn a_consumer_that_goes_reaches_an_engine_that_hangs_or_is_stalled() {
    let rig = Rig::start().await;
    let hanging = rig
        .generate(1, script("weir", Some((0, FaultKind::Hang))))
        .await
        .unwrap();
    let stalled = rig.generate(0, request("mock", Some(5_000))).await.unwrap();
    assert_eq!(
        rig.stats()
            .await
            .iter()
            .map(|stats| stats.running + stats.waiting)
            .sum::<u64>(),
        2
    );
    drop((hanging, stalled));
    rig.idle().await;
}

#[tokio::test]
async fn a_stopped_stream_finishes_with_what_it_has() {
    let rig = Rig::start().await;
    let mut slow = script("weir", None);
    slow.script.as_mut().unwrap()[1].delay_ms = 600_000;
    let mut anchor = rig.generate(1, slow).await.unwrap();
    let mut seen = Seen::default();
    seen.add(&anchor.next().await.unwrap().unwrap());
    anchor.stop();
    let rest = read(anchor).await;
    assert_eq!(
        (seen.tokens, rest.tokens, rest.finish),
        (1, 0, Some((FinishReason::Stop, 1)))
    );
}

#[tokio::test]
async fn a_last_item_without_credit_waits_and_holds_up_nobody() {
    let rig = Rig::start().await;
    let window = NodeConfig::default().window_records;
    let unread = rig.generate(0, request("mock", Some(window))).await.unwrap();
    let gone = rig.generate(0, request("mock", Some(window))).await.unwrap();
    rig.idle().await;
    let endings = |count: u32| format!("weir_worker_endings_waiting {count}\n");
    assert!(rig.metrics().contains(&endings(2)), "{}", rig.metrics());
    drop(gone);
    assert_eq!(
        read(rig.generate(0, request("mock", Some(9))).await.unwrap())
            .await
            .tokens,
        9
    );
    let seen = read(unread).await;
    assert_eq!(
        (seen.tokens, seen.finish),
        (window as usize, Some((FinishReason::Length, window)))
    );
    let none = async {
        while !rig.metrics().contains(&endings(0)) {
            rig.stats().await;
        }
    };
    timeout(PATIENCE, none).await.expect("no ending waits");
}

#[tokio::test]
async fn a_draining_host_ends_what_it_has_and_refuses_more() {
    let rig = Rig::start().await;
    let mut slow = script("weir", None);
    slow.script.as_mut().unwrap()[3].delay_ms = 300;
    let running = rig.generate(1, slow).await.unwrap();
    let host = rig.host.clone();
    let drained = tokio::spawn(async move { host.drain(Instant::now() + PATIENCE).await });
    let refused = async {
        loop {
            // Until the drain has begun, requests are taken.
            match rig.generate(1, script("x", None)).await {
                Ok(taken) => drop(taken),
                Err(refusal) => return refusal,
            }
        }
    };
    assert_eq!(
        timeout(PATIENCE, refused).await.expect("it refuses"),
        Refusal::Draining
    );
    assert_eq!(read(running).await.bytes, b"weir");
    assert_eq!(drained.await.unwrap(), 0);
}

#[tokio::test]
async fn a_drain_that_is_too_short_says_what_is_left() {
    let rig = Rig::start().await;
    let _hanging = rig
        .generate(1, script("weir", Some((0, FaultKind::Hang))))
        .await
        .unwrap();
    assert_eq!(rig.host.drain(Instant::now()).await, 1);
}

#[tokio::test]
async fn a_host_that_closes_ends_its_link() {
    let rig = Rig::start().await;
    let hanging = rig
        .generate(1, script("weir", Some((1, FaultKind::Hang))))
        .await
        .unwrap();
    rig.host.close().await;
    let seen = read(hanging).await;
    assert_eq!((seen.error, seen.finish), (Some(StreamErrorKind::PeerLost), None));
    timeout(PATIENCE, rig.peer.gone()).await.expect("the link ends");
}

#[tokio::test]
async fn it_registers_its_workers_in_order() {
    let rig = Rig::start().await;
    let registration = rig.host.registration();
    let models: Vec<_> = registration
        .workers
        .iter()
        .map(|card| card.name.as_str())
        .collect();
    assert_eq!(models, ["mock", "scripted"]);
    assert_eq!(
        (registration.addr, registration.pid),
        (rig.host.node().addr(), std::process::id())
    );
}

async fn get(server: &MetricsServer, head: &str) -> String {
    let mut socket = TcpStream::connect(server.addr()).await.expect("it listens");
    socket
        .write_all(format!("{head} HTTP/1.1\r\nhost: w\r\n\r\n").as_bytes())
        .await
        .expect("it reads");
    let mut answer = String::new();
    socket
        .read_to_string(&mut answer)
        .await
        .expect("it answers and closes");
    answer
}

#[tokio::test]
async fn the_metrics_of_host_and_node_are_served() {
    let rig = Rig::start().await;
    let server = MetricsServer::start(rig.host.clone(), ([127, 0, 0, 1], 0).into())
        .await
        .unwrap();
    let _hanging = rig
        .generate(1, script("weir", Some((0, FaultKind::Hang))))
        .await
        .unwrap();
    let running = async { while rig.stats().await[1].running == 0 {} };
    timeout(PATIENCE, running).await.expect("it runs");
    let answer = get(&server, "GET /metrics").await;
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    for line in [
        "weir_engine_running{worker=\"w0/1\"} 1",
        "weir_live_slots 0",
        "# TYPE weir_runtime_tasks gauge",
    ] {
        assert!(answer.lines().any(|has| has == line), "{line} in {answer}");
    }
    assert!(get(&server, "GET /other").await.starts_with("HTTP/1.1 404"));
    assert!(get(&server, "POST /metrics").await.starts_with("HTTP/1.1 405"));
}
