//! A peer that does not keep the rules, by raw socket: its link ends with a code and a metric, the node goes on.

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};
use weir_net::{Node, NodeConfig};
use weir_proto::wire::{
    Answer, ClaimToken, FrameHeader, FrameKind, Hello, NodeId, PREFIX, RecordHeader, RecordKind, SlotRef,
};

use crate::pair::{Pair, drain, until};

pub(crate) fn hello(id: u8) -> Hello {
    Hello {
        node: NodeId([id; 16]),
        incarnation: 1,
        max_window_records: 512,
        max_window_bytes: 1 << 20,
        listen: String::new(),
    }
}

/// A raw connection whose hello was accepted.
pub(crate) async fn linked(node: &Node, id: u8) -> TcpStream {
    let mut stream = TcpStream::connect(node.addr()).await.unwrap();
    stream.write_all(&hello(id).encode()).await.unwrap();
    assert!(matches!(answer(&mut stream).await, Answer::Accept(_)));
    stream
}

async fn answer(stream: &mut TcpStream) -> Answer {
    let mut prefix = [0; PREFIX];
    stream.read_exact(&mut prefix).await.unwrap();
    let mut body = vec![0; Hello::body_len(prefix).unwrap()];
    stream.read_exact(&mut body).await.unwrap();
    Answer::decode(&body).unwrap()
}

fn frame(number: u64, payload: &[u8]) -> Vec<u8> {
    let header = FrameHeader {
        payload: payload.len() as u32,
        kind: FrameKind::Batch,
        number,
    };
    [&header.encode()[..], payload].concat()
}

fn record(index: u32, generation: u16, kind: RecordKind, body: &[u8]) -> Vec<u8> {
    let header = RecordHeader {
        slot: SlotRef { index, generation },
        kind,
        body: body.len() as u16,
    };
    [&header.encode()[..], body].concat()
}

/// The code of the `Bye` that ends the connection; frames before it are skipped.
async fn bye(stream: &mut TcpStream) -> u16 {
    loop {
        let mut header = [0; 16];
        stream.read_exact(&mut header).await.unwrap();
        let header = FrameHeader::parse(header).unwrap();
        let mut payload = vec![0; header.payload as usize];
        stream.read_exact(&mut payload).await.unwrap();
        if header.kind == FrameKind::Bye {
            return u16::from_le_bytes([payload[0], payload[1]]);
        }
    }
}

/// Metric label, wire code, and the bytes that earn them.
type Bad = (&'static str, u16, Vec<u8>);

fn bad_frames() -> Vec<Bad> {
    let header = |kind, number| {
        FrameHeader {
            payload: 0,
            kind,
            number,
        }
        .encode()
        .to_vec()
    };
    let mut oversized = header(FrameKind::Batch, 1);
    oversized[..4].copy_from_slice(&40_000_u32.to_le_bytes());
    let mut unknown = frame(1, b"x");
    unknown[4] = 99;
    let mut reserved = frame(1, &record(0, 0, RecordKind::Stop, b""));
    reserved[5] = 1;
    let skipped = frame(2, &record(0, 0, RecordKind::Stop, b""));
    vec![
        ("frame_too_large", 0x103, oversized),
        ("unknown_frame", 0x101, unknown),
        ("malformed_frame", 0x102, reserved),
        ("empty_frame", 0x104, frame(1, b"")),
        ("frame_number", 0x105, skipped),
        ("ack_unsent", 0x106, header(FrameKind::Ack, 1 << 40)),
    ]
}

fn bad_records() -> Vec<Bad> {
    let mut unknown = record(0, 0, RecordKind::Stop, b"");
    unknown[3] = 77;
    let mut past_frame = record(0, 0, RecordKind::Item, b"abc");
    past_frame[6] = 200;
    let truncated = record(0, 0, RecordKind::Stop, b"")[..5].to_vec();
    let records = [
        ("unknown_record", 0x201, unknown),
        ("malformed_record", 0x202, past_frame),
        ("malformed_record", 0x202, truncated),
        ("malformed_record", 0x202, record(0, 0, RecordKind::End, &[9])),
        (
            "malformed_record",
            0x202,
            record(0, 0, RecordKind::Grant, &[0; 15]),
        ),
        ("malformed_record", 0x202, record(0, 0, RecordKind::Call, &[7; 9])),
        (
            "malformed_record",
            0x202,
            record(0, 0, RecordKind::Handlers, b"\x02\x01h"),
        ),
        (
            "slot_out_of_table",
            0x203,
            record(0xff_ffff, 1, RecordKind::Item, b"x"),
        ),
        (
            "slot_out_of_table",
            0x203,
            record(1, 1, RecordKind::Item, b"of a slot never handed out"),
        ),
        (
            "call_protocol",
            0x302,
            record(0, 0, RecordKind::CallPart, &[1; 9]),
        ),
        ("call_protocol", 0x302, record(0, 0, RecordKind::Reply, &[1; 13])),
    ];
    records
        .map(|(label, code, record)| (label, code, frame(1, &record)))
        .into()
}

#[tokio::test]
async fn bad_bytes_end_their_link_with_a_code_and_nothing_else() {
    let pair = Pair::new().await;
    let (mut anchor, mut sender) = pair.stream();
    sender.send(b"before").await.unwrap();
    let node = &pair.consumer;
    let mut expected: std::collections::BTreeMap<&str, u64> = std::collections::BTreeMap::new();
    for (id, (label, code, bytes)) in bad_frames().into_iter().chain(bad_records()).enumerate() {
        let mut stream = linked(node, id as u8 + 1).await;
        stream.write_all(&bytes).await.unwrap();
        assert_eq!(bye(&mut stream).await, code, "{label}");
        *expected.entry(label).or_default() += 1;
        until(|| node.metrics().links == 1).await;
        assert_eq!(
            node.metrics().violations.get(label),
            expected.get(label),
            "{label}"
        );
    }
    sender.send(b"after").await.unwrap();
    drop(sender.finish());
    assert_eq!(drain(&mut anchor).await.0, [&b"before"[..], b"after"]);
}

#[tokio::test]
async fn a_cut_frame_is_not_delivered() {
    let pair = Pair::new().await;
    let mut raw = linked(&pair.consumer, 9).await;
    let peer = pair
        .consumer
        .peers()
        .into_iter()
        .find(|peer| peer.id() == NodeId([9; 16]))
        .unwrap();
    let mut anchor = pair.consumer.anchor();
    let ticket = weir_proto::wire::Ticket::decode(&anchor.mint(&peer).unwrap().to_bytes()).unwrap();
    let (index, generation) = (ticket.slot.index, ticket.slot.generation);
    let first = frame(1, &record(index, generation, RecordKind::Open, &ticket.token.0));
    let second = frame(2, &record(index, generation, RecordKind::Item, b"never whole"));
    raw.write_all(&first).await.unwrap();
    raw.write_all(&second[..second.len() - 1]).await.unwrap();
    raw.flush().await.unwrap();
    drop(raw);
    let (items, end) = drain(&mut anchor).await;
    assert!(items.is_empty());
    assert_eq!(end.unwrap_err().kind, weir_net::StreamErrorKind::PeerLost);
}

#[tokio::test]
async fn a_wrong_claim_is_refused_and_the_owner_is_undisturbed() {
    let pair = Pair::new().await;
    let (mut anchor, mut sender) = pair.stream();
    sender.send(b"one").await.unwrap();
    until(|| pair.consumer.metrics().records_in >= 1).await;
    let mut raw = linked(&pair.consumer, 9).await;
    let wrong = ClaimToken([3; 16]);
    raw.write_all(&frame(1, &record(0, 1, RecordKind::Open, &wrong.0)))
        .await
        .unwrap();
    until(|| pair.consumer.metrics().claims_refused == 1).await;
    // Data for a stream that is bound elsewhere is dropped and counted.
    raw.write_all(&frame(2, &record(0, 1, RecordKind::Item, b"forged")))
        .await
        .unwrap();
    until(|| pair.consumer.metrics().stale_in == 1).await;
    assert_eq!(pair.consumer.metrics().links, 2);
    sender.send(b"two").await.unwrap();
    drop(sender.finish());
    assert_eq!(
        drain(&mut anchor).await,
        (vec![b"one".to_vec(), b"two".to_vec()], Ok(()))
    );
}

#[tokio::test]
async fn a_record_past_its_limit_ends_the_link() {
    let node = Node::bind(NodeConfig {
        window_records: 2,
        ..NodeConfig::default()
    })
    .await
    .unwrap();
    let mut raw = linked(&node, 9).await;
    let peer = node.peers().pop().unwrap();
    let mut anchor = node.anchor();
    let ticket = weir_proto::wire::Ticket::decode(&anchor.mint(&peer).unwrap().to_bytes()).unwrap();
    let (index, generation) = (ticket.slot.index, ticket.slot.generation);
    let mut payload = record(index, generation, RecordKind::Open, &ticket.token.0);
    for _ in 0..3 {
        payload.extend(record(index, generation, RecordKind::Item, b""));
    }
    raw.write_all(&frame(1, &payload)).await.unwrap();
    assert_eq!(bye(&mut raw).await, 0x204);
    let (items, end) = drain(&mut anchor).await;
    assert_eq!(
        (items.len(), end.unwrap_err().kind),
        (2, weir_net::StreamErrorKind::PeerLost)
    );
}

#[tokio::test]
async fn a_grant_beyond_the_declared_window_ends_the_link() {
    let node = Node::bind(NodeConfig::default()).await.unwrap();
    let mut raw = linked(&node, 9).await;
    let mine = weir_proto::wire::Ticket {
        node: NodeId([9; 16]),
        incarnation: 1,
        peer: weir_proto::wire::NodeId(node.id().0),
        slot: SlotRef {
            index: 5,
            generation: 1,
        },
        token: ClaimToken([1; 16]),
        window_records: 1,
        window_bytes: 1024,
        expires_unix_ms: 0,
    };
    let mut sender = node
        .open(&weir_net::Ticket::from_bytes(&mine.encode()).unwrap())
        .unwrap();
    let body = [513_u64.to_le_bytes(), 0_u64.to_le_bytes()].concat();
    raw.write_all(&frame(1, &record(5, 1, RecordKind::Grant, &body)))
        .await
        .unwrap();
    assert_eq!(bye(&mut raw).await, 0x205);
    sender.cancelled().await;
}

#[tokio::test]
async fn strangers_and_silent_ones_get_no_link() {
    let config = NodeConfig {
        handshake_timeout: std::time::Duration::from_millis(100),
        ..NodeConfig::default()
    };
    let node = Node::bind(config).await.unwrap();
    let mut http = TcpStream::connect(node.addr()).await.unwrap();
    http.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    let mut rest = Vec::new();
    let _reset = http.read_to_end(&mut rest).await;
    let mut silent = TcpStream::connect(node.addr()).await.unwrap();
    assert_eq!(silent.read(&mut [0; 1]).await.unwrap(), 0);
    let mut future = TcpStream::connect(node.addr()).await.unwrap();
    let mut bytes = hello(3).encode();
    bytes[6..10].copy_from_slice(&[9, 0, 9, 0]);
    future.write_all(&bytes).await.unwrap();
    assert!(matches!(
        answer(&mut future).await,
        Answer::Refuse(weir_proto::wire::RefuseCode::Version, _)
    ));
    until(|| node.metrics().handshakes_failed == 3).await;
    assert_eq!(node.metrics().links, 0);
    linked(&node, 4).await;
}

#[tokio::test]
async fn a_second_link_of_a_node_id_in_use_is_refused() {
    let node = Node::bind(NodeConfig::default()).await.unwrap();
    let _first = linked(&node, 9).await;
    let mut second = TcpStream::connect(node.addr()).await.unwrap();
    second.write_all(&hello(9).encode()).await.unwrap();
    assert!(matches!(
        answer(&mut second).await,
        Answer::Refuse(weir_proto::wire::RefuseCode::NodeIdInUse, _)
    ));
    assert_eq!(node.metrics().links, 1);
}

/// A peer that `node` has dialled and that says it is `id`; the connection stays open as long as the stream.
async fn dialled(node: &Node, id: u8) -> TcpStream {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let accept = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut prefix = [0; PREFIX];
        stream.read_exact(&mut prefix).await.unwrap();
        let mut body = vec![0; Hello::body_len(prefix).unwrap()];
        stream.read_exact(&mut body).await.unwrap();
        let accepted = Answer::Accept(hello(id)).encode();
        stream.write_all(&accepted).await.unwrap();
        stream
    };
    let (stream, peer) = tokio::join!(accept, node.connect(addr));
    assert_eq!(peer.unwrap().id(), NodeId([id; 16]));
    stream
}

#[tokio::test]
async fn whoever_gives_the_id_of_a_dialled_peer_is_refused_and_ends_nothing() {
    let node = Node::bind(NodeConfig::default()).await.unwrap();
    // One id below the node's own and one above: no order of ids lets a stranger in.
    for id in [0, 0xff] {
        let _dialled = dialled(&node, id).await;
        let find = |peer: &weir_net::Peer| peer.id() == NodeId([id; 16]);
        let peer = node.peers().into_iter().find(find).unwrap();
        let mut thief = TcpStream::connect(node.addr()).await.unwrap();
        thief.write_all(&hello(id).encode()).await.unwrap();
        assert!(matches!(
            answer(&mut thief).await,
            Answer::Refuse(weir_proto::wire::RefuseCode::Crossing, _)
        ));
        assert_eq!(peer.health(), weir_net::Health::Up);
    }
}

#[tokio::test]
async fn a_peer_that_has_dialled_already_is_found_by_dialling_it() {
    for first_is_lower in [true, false] {
        let one = Node::bind(NodeConfig::default()).await.unwrap();
        let two = Node::bind(NodeConfig::default()).await.unwrap();
        let (first, second) = if (one.id() < two.id()) == first_is_lower {
            (one, two)
        } else {
            (two, one)
        };
        let there = first.connect(second.addr()).await.unwrap();
        let back = second.connect(first.addr()).await.unwrap();
        assert_eq!((there.id(), back.id()), (second.id(), first.id()));
        assert_eq!(
            (there.health(), back.health()),
            (weir_net::Health::Up, weir_net::Health::Up)
        );
        assert_eq!((first.metrics().links, second.metrics().links), (1, 1));
    }
}

#[tokio::test]
async fn nothing_beyond_loopback_is_dialled() {
    let node = Node::bind(NodeConfig::default()).await.unwrap();
    let addr = ([192, 0, 2, 1], 7000).into();
    let error = node.connect(addr).await.unwrap_err();
    assert!(matches!(error, weir_net::ConnectError::NotLoopback { addr: named } if named == addr));
}

#[tokio::test]
async fn a_silent_peer_is_lost_and_a_quiet_one_is_kept() {
    let timeout = std::time::Duration::from_millis(200);
    let pair = Pair::with(NodeConfig {
        peer_timeout: timeout,
        ..NodeConfig::default()
    })
    .await;
    let raw = linked(&pair.consumer, 9).await;
    assert_eq!(pair.consumer.metrics().links, 2);
    // The raw peer never says anything; the real one has nothing to say and sends keepalives.
    until(|| pair.consumer.metrics().links == 1).await;
    assert_eq!(pair.peer.health(), weir_net::Health::Up);
    drop(raw);
}
