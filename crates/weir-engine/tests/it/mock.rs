//! The mock engine: timing, limits, backpressure, cancellation and its gauges, on paused time.

use std::time::Duration;

use weir_engine::{
    Demand, Engine, EngineStats, FinishReason, Refusal, Request,
    mock::{MockConfig, MockEngine},
    tokenizer::Tokenizer,
};

use crate::recorder::{End, Recorder, finished, played, request, submit};

fn engine(change: impl FnOnce(&mut MockConfig)) -> MockEngine {
    let mut config = MockConfig {
        pass: Duration::from_millis(10),
        prefill_per_token: Duration::from_millis(1),
        ..MockConfig::default()
    };
    change(&mut config);
    MockEngine::start(&config)
}

fn fast() -> MockEngine {
    engine(|config| config.speedup = f64::INFINITY)
}

async fn ids_of(request: Request) -> Vec<u32> {
    played(fast(), request).await.1.ids()
}

fn gauges(running: u64, waiting: u64) -> impl Fn(EngineStats) -> bool {
    move |stats| (stats.running, stats.waiting) == (running, waiting)
}

#[tokio::test(start_paused = true)]
async fn a_pass_takes_prefill_and_pass_time_and_yields_one_token() {
    let engine = engine(|_| {});
    let recorder = submit(&engine, request("mock", 5, Some(3)), usize::MAX);
    assert_eq!(recorder.end().await, finished(FinishReason::Length, 5, 3));
    assert_eq!(recorder.times(), [15, 25, 35].map(Duration::from_millis));
}

#[tokio::test(start_paused = true)]
async fn a_later_request_joins_at_the_next_pass_and_both_share_it() {
    let engine = engine(|_| {});
    let first = submit(&engine, request("mock", 5, Some(4)), usize::MAX);
    first.tokens(1).await;
    tokio::time::advance(Duration::from_millis(4)).await;
    let second = submit(&engine, request("mock", 20, Some(1)), usize::MAX);
    first.end().await;
    assert_eq!(first.times(), [15, 25, 55, 65].map(Duration::from_millis));
    assert_eq!(second.times(), [Duration::from_millis(55 - 19)]);
}

#[tokio::test]
async fn tokens_depend_on_model_prompt_seed_choice_and_position_only() {
    let base = ids_of(request("mock", 9, Some(40))).await;
    assert_eq!(
        ids_of(Request {
            id: "other".into(),
            attempt: 3,
            ..request("mock", 9, Some(40))
        })
        .await,
        base
    );
    assert_eq!(ids_of(request("mock", 9, Some(10))).await, base[..10]);
    let mut seed = request("mock", 9, Some(40));
    seed.sampling.seed = Some(2);
    for other in [
        seed,
        Request {
            choice: 1,
            ..request("mock", 9, Some(40))
        },
        request("mock", 8, Some(40)),
    ] {
        assert_ne!(ids_of(other).await, base);
    }
    let tokenizer = Tokenizer::builtin();
    assert!(
        base.iter()
            .all(|id| *id < tokenizer.vocabulary_size() && !tokenizer.is_special(*id))
    );
}

#[tokio::test]
async fn every_token_is_text() {
    let recorder = played(fast(), request("mock", 3, Some(2_000))).await.1;
    assert_eq!(
        recorder.text().as_bytes(),
        Tokenizer::builtin().decode(&recorder.ids())
    );
}

#[tokio::test]
async fn without_a_limit_it_stops_after_64_or_min_tokens() {
    assert_eq!(
        played(fast(), request("mock", 3, None)).await.0,
        finished(FinishReason::Stop, 3, 64)
    );
    assert_eq!(
        played(
            fast(),
            Request {
                min_tokens: 70,
                ..request("mock", 3, None)
            }
        )
        .await
        .0,
        finished(FinishReason::Stop, 3, 70)
    );
}

#[tokio::test]
async fn the_context_length_ends_it_and_a_longer_prompt_is_refused() {
    let engine = engine(|config| (config.context_length, config.speedup) = (10, f64::INFINITY));
    for max_tokens in [None, Some(50)] {
        let recorder = submit(&engine, request("mock", 7, max_tokens), usize::MAX);
        assert_eq!(recorder.end().await, finished(FinishReason::Length, 7, 3));
    }
    for bad in [
        request("mock", 10, None),
        request("mock", 0, None),
        request("other", 1, None),
    ] {
        let (sink, recorder) = Recorder::new();
        assert!(matches!(engine.submit(bad, sink), Err(Refusal::Invalid(_))));
        assert_eq!(recorder.ended(), Some(End::Dropped));
    }
}

#[tokio::test]
async fn a_stop_token_ends_it_unshown_once_min_tokens_are_out() {
    let ids = ids_of(request("mock", 3, Some(40))).await;
    let stopping = Request {
        stop_token_ids: vec![ids[5], ids[9]],
        ..request("mock", 3, Some(40))
    };
    assert_eq!(
        played(fast(), stopping.clone()).await.0,
        finished(FinishReason::Stop, 3, 5)
    );
    assert_eq!(
        played(
            fast(),
            Request {
                min_tokens: 6,
                ..stopping
            }
        )
        .await
        .0,
        finished(FinishReason::Stop, 3, 9)
    );
}

#[tokio::test(start_paused = true)]
async fn a_full_sink_keeps_its_token_and_stalls_only_itself() {
    let engine = engine(|_| {});
    let slow = submit(&engine, request("mock", 5, Some(6)), 2);
    let free = submit(&engine, request("mock", 5, Some(20)), usize::MAX);
    assert_eq!(free.end().await, finished(FinishReason::Length, 5, 20));
    assert_eq!((slow.ids().len(), engine.stats().running), (2, 1));
    slow.grant(10);
    assert_eq!(slow.end().await, finished(FinishReason::Length, 5, 6));
    assert_eq!(slow.ids(), ids_of(request("mock", 5, Some(6))).await);
    assert!(gauges(0, 0)(engine.stats()));
}

#[tokio::test]
async fn an_infinitely_fast_engine_serves_returned_credit_beside_a_stream_that_never_stalls() {
    let engine = engine(|config| (config.speedup, config.context_length) = (f64::INFINITY, u32::MAX));
    let endless = submit(&engine, request("mock", 1, Some(u32::MAX - 1)), usize::MAX);
    let slow = submit(&engine, request("mock", 5, Some(3)), 1);
    slow.tokens(1).await;
    slow.grant(2);
    assert_eq!(slow.end().await, finished(FinishReason::Length, 5, 3));
    endless.set_demand(Demand::Cancelled);
    assert_eq!(endless.end().await, End::Dropped);
}

#[tokio::test(start_paused = true)]
async fn stop_and_cancel_reach_waiting_requests_within_the_pass() {
    let engine = engine(|config| config.max_running = 1);
    let first = submit(&engine, request("mock", 5, Some(2)), usize::MAX);
    let [stopped, cancelled, last] =
        [1, 2, 3].map(|n| submit(&engine, request("mock", n, Some(2)), usize::MAX));
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert!(gauges(1, 3)(engine.stats()));
    stopped.set_demand(Demand::Stop);
    cancelled.set_demand(Demand::Cancelled);
    assert_eq!(stopped.end().await, finished(FinishReason::Stop, 1, 0));
    assert_eq!(cancelled.end().await, End::Dropped);
    assert!(first.ids().is_empty() && gauges(1, 1)(engine.stats()));
    assert_eq!(last.end().await, finished(FinishReason::Length, 3, 2));
    assert_eq!(
        engine.stats(),
        EngineStats {
            running: 0,
            waiting: 0,
            tokens: 4,
            requests: 4
        }
    );
}

#[tokio::test(start_paused = true)]
async fn stop_and_cancel_reach_a_stalled_request() {
    let engine = engine(|_| {});
    let [stopped, cancelled] = [Demand::Stop, Demand::Cancelled].map(|demand| {
        let recorder = submit(&engine, request("mock", 5, Some(9)), 1);
        (recorder, demand)
    });
    for (recorder, demand) in [&stopped, &cancelled] {
        recorder.tokens(1).await;
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert_eq!(recorder.ended(), None);
        recorder.set_demand(*demand);
        recorder.end().await;
    }
    assert_eq!(stopped.0.ended(), Some(finished(FinishReason::Stop, 5, 1)));
    assert_eq!(cancelled.0.ended(), Some(End::Dropped));
    assert!(gauges(0, 0)(engine.stats()));
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_running_request_is_gone_after_its_pass() {
    let engine = engine(|_| {});
    let recorder = submit(&engine, request("mock", 5, Some(100)), usize::MAX);
    recorder.tokens(3).await;
    recorder.set_demand(Demand::Cancelled);
    assert_eq!(recorder.end().await, End::Dropped);
    assert_eq!((recorder.ids().len(), engine.stats().running), (3, 0));
}

#[tokio::test(start_paused = true)]
async fn a_full_engine_is_busy() {
    let engine = engine(|config| (config.max_running, config.max_requests) = (1, 2));
    let taken = [1, 2].map(|n| submit(&engine, request("mock", n, Some(1)), usize::MAX));
    let (sink, _) = Recorder::new();
    assert!(matches!(
        engine.submit(request("mock", 3, Some(1)), sink),
        Err(Refusal::Busy(_))
    ));
    for recorder in taken {
        recorder.end().await;
    }
    submit(&engine, request("mock", 3, Some(1)), usize::MAX)
        .end()
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_dropped_engine_drops_its_streams() {
    let engine = engine(|_| {});
    let recorder = submit(&engine, request("mock", 5, Some(100)), usize::MAX);
    recorder.tokens(1).await;
    drop(engine);
    assert_eq!(recorder.end().await, End::Dropped);
}
