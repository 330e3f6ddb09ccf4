//! The engine as a worker sees it: sinks that fill up, go away or stop; refusals; repeatable answers.

use std::pin::Pin;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::task::Waker;

use weir_engine::contract::{
    Demand, Emitted, Engine, EngineError, FinishReason, ModelCard, Refusal, Request, Sampling, TokenEvent,
    TokenSink, Usage,
};
use weir_model::Threads;
use weir_model::arch::Family;
use weir_model::batch::Limits;
use weir_model::engine::LocalEngine;
use weir_model::model::Model;
use weir_model::tokenizer::Tokenizer;

use crate::{ids, mixed, opened};

/// What came out of a stream.
#[derive(Debug, PartialEq, Eq)]
enum Out {
    Token(u32),
    Finished(FinishReason, Usage),
    Failed(String),
    Dropped,
}

/// What a consumer grants and wants, shared with its sink.
struct Consumer {
    credit: usize,
    demand: Demand,
    waker: Option<Waker>,
}

struct Sink {
    out: Sender<Out>,
    consumer: Arc<Mutex<Consumer>>,
    ended: bool,
}

impl TokenSink for Sink {
    fn emit(&mut self, event: TokenEvent<'_>) -> Emitted {
        let mut consumer = self.consumer.lock().unwrap();
        if consumer.demand == Demand::Cancelled {
            return Emitted::Gone;
        }
        if consumer.credit == 0 {
            return Emitted::Full;
        }
        consumer.credit -= 1;
        self.out.send(Out::Token(event.id)).unwrap();
        Emitted::Taken
    }

    fn demand(&self) -> Demand {
        self.consumer.lock().unwrap().demand
    }

    fn wake_on_change(&mut self, waker: &Waker) {
        self.consumer.lock().unwrap().waker = Some(waker.clone());
    }

    fn flush(&mut self) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(std::future::ready(()))
    }

    fn finish(mut self: Box<Self>, reason: FinishReason, usage: Usage) {
        self.ended = true;
        self.out.send(Out::Finished(reason, usage)).unwrap();
    }

    fn fail(mut self: Box<Self>, error: EngineError) {
        self.ended = true;
        self.out.send(Out::Failed(error.message)).unwrap();
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        if !self.ended {
            let _ = self.out.send(Out::Dropped);
        }
    }
}

/// The test's end of a stream.
struct Stream {
    out: Receiver<Out>,
    consumer: Arc<Mutex<Consumer>>,
}

impl Stream {
    fn change(&self, change: impl FnOnce(&mut Consumer)) {
        let mut consumer = self.consumer.lock().unwrap();
        change(&mut consumer);
        let waker = consumer.waker.take();
        drop(consumer);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// All tokens up to the end, and the end.
    fn rest(&self) -> (Vec<u32>, Out) {
        let mut tokens = Vec::new();
        loop {
            match self.out.recv().unwrap() {
                Out::Token(id) => tokens.push(id),
                end => return (tokens, end),
            }
        }
    }
}

fn engine(memory: usize) -> LocalEngine {
    let gguf = opened(&mixed(Family::Gemma3));
    let model = Model::load(&gguf, 1, &Threads::new(1).unwrap()).unwrap();
    let tokenizer = Arc::new(Tokenizer::from_gguf(&gguf).unwrap());
    let card = ModelCard {
        name: "tiny".to_owned(),
        context_length: 512,
        tokenizer: "tiny".to_owned(),
    };
    LocalEngine::start(
        model,
        tokenizer,
        Limits {
            memory,
            running: 4,
            waiting: 4,
        },
        card,
    )
    .unwrap()
}

fn request(seed: u64, max_tokens: u32) -> Request {
    Request {
        id: seed.to_string(),
        model: "tiny".to_owned(),
        prompt: ids(20, usize::try_from(seed).unwrap()),
        max_tokens: Some(max_tokens),
        min_tokens: 0,
        ignore_eos: true,
        stop_token_ids: Vec::new(),
        sampling: Sampling {
            seed: Some(seed),
            ..Sampling::default()
        },
        choice: 0,
        attempt: 0,
        script: None,
        fault: None,
    }
}

fn submit(engine: &LocalEngine, request: Request, credit: usize) -> Result<Stream, Refusal> {
    let (sender, out) = channel();
    let consumer = Arc::new(Mutex::new(Consumer {
        credit,
        demand: Demand::More,
        waker: None,
    }));
    let sink = Sink {
        out: sender,
        consumer: Arc::clone(&consumer),
        ended: false,
    };
    engine.submit(request, Box::new(sink))?;
    Ok(Stream { out, consumer })
}

const PLENTY: usize = 1 << 30;

#[test]
fn seeded_answers_repeat_beside_others() {
    let engine = engine(PLENTY);
    let alone: Vec<_> = (0..4)
        .map(|seed| submit(&engine, request(seed, 12), 99).unwrap().rest().0)
        .collect();
    let together: Vec<_> = (0..4)
        .map(|seed| submit(&engine, request(seed, 12), 99).unwrap())
        .collect();
    for (stream, alone) in together.iter().zip(&alone) {
        let (tokens, end) = stream.rest();
        assert_eq!(&tokens, alone);
        let Out::Finished(FinishReason::Length, usage) = end else {
            panic!("{end:?}")
        };
        assert_eq!((usage.prompt_tokens, usage.completion_tokens), (20, 12));
    }
    let other = Request {
        choice: 1,
        ..request(1, 12)
    };
    assert_ne!(
        submit(&engine, other, 99).unwrap().rest().0,
        alone[1],
        "choices differ"
    );
}

#[test]
fn a_slow_reader_waits_alone_and_loses_nothing() {
    let engine = engine(PLENTY);
    let expected = submit(&engine, request(1, 10), 99).unwrap().rest().0;
    let slow = submit(&engine, request(1, 10), 3).unwrap();
    let mut tokens: Vec<u32> = Vec::new();
    for _ in 0..3 {
        let Out::Token(id) = slow.out.recv().unwrap() else {
            panic!("a token")
        };
        tokens.push(id);
    }
    assert_eq!(submit(&engine, request(2, 10), 99).unwrap().rest().0.len(), 10);
    slow.change(|consumer| consumer.credit = 99);
    let (rest, end) = slow.rest();
    tokens.extend(rest);
    assert_eq!(tokens, expected);
    assert!(matches!(end, Out::Finished(FinishReason::Length, _)));
}

#[test]
fn a_consumer_that_leaves_frees_its_place() {
    let engine = engine(PLENTY);
    let leaving: Vec<_> = (0..4)
        .map(|seed| submit(&engine, request(seed, 400), 1).unwrap())
        .collect();
    let next = submit(&engine, request(9, 5), 99).unwrap();
    for stream in &leaving {
        stream.change(|consumer| consumer.demand = Demand::Cancelled);
        assert_eq!(stream.rest().1, Out::Dropped);
    }
    assert_eq!(next.rest().0.len(), 5);
}

#[test]
fn a_consumer_that_has_enough_gets_a_clean_end() {
    let engine = engine(PLENTY);
    let stream = submit(&engine, request(1, 400), 2).unwrap();
    assert!(matches!(stream.out.recv().unwrap(), Out::Token(_)));
    stream.change(|consumer| consumer.demand = Demand::Stop);
    assert!(matches!(stream.rest().1, Out::Finished(FinishReason::Stop, _)));
}

#[test]
fn what_cannot_run_is_refused_at_once() {
    let engine = engine(1 << 20);
    let refused = |request| submit(&engine, request, 1).map(|_| ()).unwrap_err();
    let Refusal::Invalid(text) = refused(request(1, 500)) else {
        panic!("invalid")
    };
    assert!(text.contains("exceed the model's context of 512"), "{text}");
    let Refusal::Invalid(text) = refused(request(1, 400)) else {
        panic!("invalid")
    };
    assert!(text.contains("MiB"), "{text}");
    let hot = Sampling {
        temperature: -1.0,
        ..Sampling::default()
    };
    let Refusal::Invalid(text) = refused(Request {
        sampling: hot,
        ..request(1, 4)
    }) else {
        panic!("invalid")
    };
    assert!(text.contains("temperature"), "{text}");
}

#[test]
fn stopping_the_engine_drops_its_streams() {
    let engine = engine(PLENTY);
    let stream = submit(&engine, request(1, 400), 1).unwrap();
    assert!(matches!(stream.out.recv().unwrap(), Out::Token(_)));
    drop(engine);
    assert_eq!(stream.rest().1, Out::Dropped);
}
