//! The frontend over real sockets: raw HTTP on one side, worker hosts on the other.

mod answers;
mod bad_input;
mod client;
mod drain;
mod going;
mod routing;

use std::{net::SocketAddr, sync::Arc};

use serde_json::{Value, json};
use tokio::{
    sync::{oneshot, watch},
    task::JoinHandle,
    time::timeout,
};
use weir_engine::{
    Engine,
    mock::{MockConfig, MockEngine},
    scripted::{ScriptedConfig, ScriptedEngine},
};
use weir_net::{Node, NodeConfig};
use weir_serve::{
    discovery::{Discovery, DiscoveryError, Registration},
    frontend::{Frontend, FrontendConfig},
    worker::WorkerHost,
};

use client::{Answer, Client, PATIENCE};

const CHAT: &str = "/v1/chat/completions";
const COMPLETIONS: &str = "/v1/completions";

/// Discovery by a list in memory.
struct Listed(watch::Receiver<Vec<Registration>>);

impl Discovery for Listed {
    type Lease = ();

    async fn register(&self, _: &Registration) -> Result<(), DiscoveryError> {
        unreachable!("tests set the list themselves")
    }

    async fn watch(&self) -> Result<watch::Receiver<Vec<Registration>>, DiscoveryError> {
        Ok(self.0.clone())
    }
}

/// A frontend, its workers, and the way to stop it.
struct Rig {
    addr: SocketAddr,
    hosts: Vec<WorkerHost>,
    listed: watch::Sender<Vec<Registration>>,
    stop: Option<oneshot::Sender<()>>,
    serving: JoinHandle<usize>,
}

impl Rig {
    /// A frontend with `hosts` linked worker processes, each with a mock and a scripted worker.
    async fn start(hosts: usize) -> Self {
        Self::with(hosts, FrontendConfig::default()).await
    }

    async fn with(hosts: usize, config: FrontendConfig) -> Self {
        let mut started = Vec::new();
        for index in 0..hosts {
            started.push(host(&format!("w{index}"), &ScriptedConfig::default()).await);
        }
        Self::of(started, config).await
    }

    async fn of(hosts: Vec<WorkerHost>, config: FrontendConfig) -> Self {
        let listed = watch::Sender::new(hosts.iter().map(WorkerHost::registration).collect::<Vec<_>>());
        let config = FrontendConfig {
            listen: ([127, 0, 0, 1], 0).into(),
            ..config
        };
        let node = Node::bind(NodeConfig::default()).await.expect("a node");
        let frontend = Frontend::bind(config, node, &Listed(listed.subscribe()))
            .await
            .expect("a frontend");
        let (stop, stopped) = oneshot::channel();
        let addr = frontend.addr();
        let serving = tokio::spawn(frontend.serve(async {
            let _ = stopped.await;
        }));
        let rig = Self {
            addr,
            hosts,
            listed,
            stop: Some(stop),
            serving,
        };
        rig.linked(rig.hosts.len()).await;
        rig
    }

    /// Waits until that many processes are linked.
    async fn linked(&self, count: usize) {
        self.until("weir_links", count as u64).await;
    }

    async fn client(&self) -> Client {
        Client::connect(self.addr).await
    }

    async fn post(&self, path: &str, body: &Value) -> Answer {
        let mut client = self.client().await;
        client.post(path, body).await;
        client.answer().await
    }

    async fn get(&self, path: &str) -> Answer {
        let mut client = self.client().await;
        client.get(path).await;
        client.answer().await
    }

    /// The sum of a metric over its labels.
    async fn metric(&self, name: &str) -> u64 {
        let text = String::from_utf8(self.get("/metrics").await.body).expect("UTF-8");
        let values = text
            .lines()
            .filter_map(|line| line.strip_prefix(name))
            .filter(|rest| rest.starts_with([' ', '{', '}', ',']));
        values
            .filter_map(|rest| rest.rsplit(' ').next()?.parse::<u64>().ok())
            .sum()
    }

    /// Asks for a metric until it has that value.
    async fn until(&self, name: &str, value: u64) {
        let reached = async { while self.metric(name).await != value {} };
        if timeout(PATIENCE, reached).await.is_err() {
            panic!("{name} is {} and not {value}", self.metric(name).await);
        }
    }

    /// Waits until nothing is left of any request, and no client but the one that asks.
    async fn idle(&self) {
        for (name, value) in [
            ("weir_engine_running", 0),
            ("weir_engine_waiting", 0),
            ("weir_requests_in_flight", 0),
            ("weir_live_slots", 0),
            ("weir_calls_in_flight", 0),
            ("weir_connections_open", 1),
        ] {
            self.until(name, value).await;
        }
    }

    /// The process that a request runs on.
    async fn busy_host(&self) -> &WorkerHost {
        let found = async {
            loop {
                let busy =
                    |host: &&WorkerHost| host.stats().iter().any(|stats| stats.running + stats.waiting > 0);
                if let Some(host) = self.hosts.iter().find(busy) {
                    return host;
                }
                tokio::task::yield_now().await;
            }
        };
        timeout(PATIENCE, found).await.expect("a request runs")
    }
}

async fn host(name: &str, scripted: &ScriptedConfig) -> WorkerHost {
    let mock = MockConfig {
        speedup: f64::INFINITY,
        ..MockConfig::default()
    };
    let engines: Vec<Arc<dyn Engine>> = vec![
        Arc::new(MockEngine::start(&mock)),
        Arc::new(ScriptedEngine::start(scripted)),
    ];
    WorkerHost::start(name, NodeConfig::default(), engines)
        .await
        .expect("a host")
}

/// A completion whose tokens are these bytes.
fn script<B: AsRef<[u8]>>(tokens: impl IntoIterator<Item = B>, members: Value) -> Value {
    let step = |token: B| {
        let hex: String = token.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        json!({"bytes_hex": hex})
    };
    let mut body = json!({"model": "scripted", "prompt": "go", "weir_script": tokens.into_iter().map(step).collect::<Vec<_>>()});
    if let (Value::Object(body), Value::Object(members)) = (&mut body, members) {
        body.extend(members);
    }
    body
}

/// The letters a, b, c, ... as a script.
fn letters(count: u8, members: Value) -> Value {
    script((0..count).map(|at| [b'a' + at]), members)
}

/// A script whose first token comes only after ten minutes.
fn silent(members: Value) -> Value {
    let mut body = letters(1, members);
    body["weir_script"][0]["delay_ms"] = json!(600_000);
    body
}

/// What a streamed answer to a completion or a chat adds up to.
#[derive(Debug, Default, PartialEq)]
struct Streamed {
    texts: Vec<String>,
    finish: Vec<String>,
    usage: Option<Value>,
    error: Option<Value>,
    done: bool,
}

impl Streamed {
    /// Reads the events and checks what holds for every answer.
    fn read(answer: &Answer) -> Self {
        assert_eq!(answer.status, 200, "{answer:?}");
        let mut streamed = Self::default();
        let mut ids = std::collections::BTreeSet::new();
        for event in answer.events() {
            assert!(
                !streamed.done && streamed.error.is_none(),
                "after the end: {event}"
            );
            if event == "[DONE]" {
                streamed.done = true;
                continue;
            }
            let event: Value = serde_json::from_str(&event).unwrap();
            if let Some(error) = event.get("error") {
                streamed.error = Some(error.clone());
                continue;
            }
            assert_eq!(streamed.usage, None, "after the usage: {event}");
            ids.insert(format!("{} {} {}", event["id"], event["created"], event["model"]));
            match event["choices"].as_array().unwrap().as_slice() {
                [] => streamed.usage = Some(event["usage"].clone()),
                [choice] => streamed.add(choice),
                more => panic!("{more:?}"),
            }
        }
        assert!(ids.len() <= 1, "{ids:?}");
        streamed
    }

    fn add(&mut self, choice: &Value) {
        let text = choice["text"].as_str().or(choice["delta"]["content"].as_str());
        match choice["finish_reason"].as_str() {
            Some(reason) => self.finish.push(reason.to_owned()),
            None => self.texts.push(text.unwrap().to_owned()),
        }
    }

    fn text(&self) -> String {
        self.texts.concat()
    }

    /// It broke off: an error event, and nothing that looks like an end.
    fn broken(&self) -> &Value {
        assert!(
            !self.done && self.finish.is_empty() && self.usage.is_none(),
            "{self:?}"
        );
        self.error.as_ref().expect("an error event")
    }
}
