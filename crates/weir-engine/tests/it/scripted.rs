//! The scripted engine: scripts, delays and faults, on paused time. `die` is in its own module.

use std::time::Duration;

use weir_engine::{
    Demand, Engine, EngineStats, Fault, FaultKind, FinishReason, Refusal, Request, ScriptStep,
    scripted::{ScriptedConfig, ScriptedEngine},
};

use crate::recorder::{End, Recorder, finished, played, request, submit};

/// A request whose tokens are the letters of `text`, 10 ms apart.
pub(crate) fn script(text: &str, fault: Option<(u32, FaultKind)>) -> Request {
    let step = |byte: u8| ScriptStep {
        delay_ms: 10,
        bytes_hex: format!("{byte:02x}"),
    };
    Request {
        script: Some(text.bytes().map(step).collect()),
        fault: fault.map(|(at, kind)| Fault { at, kind }),
        ..request("scripted", 4, None)
    }
}

fn engine() -> ScriptedEngine {
    ScriptedEngine::start(&ScriptedConfig::default())
}

#[tokio::test(start_paused = true)]
async fn a_script_is_played_token_by_token() {
    let engine = engine();
    let recorder = submit(&engine, script("weir", None), usize::MAX);
    assert_eq!(recorder.end().await, finished(FinishReason::Stop, 4, 4));
    assert_eq!(recorder.text(), "weir");
    assert_eq!(recorder.times(), [10, 20, 30, 40].map(Duration::from_millis));
    assert_eq!(
        engine.stats(),
        EngineStats {
            running: 0,
            waiting: 0,
            tokens: 4,
            requests: 1
        }
    );
}

#[tokio::test(start_paused = true)]
async fn max_tokens_cuts_a_script() {
    assert_eq!(
        played(
            engine(),
            Request {
                max_tokens: Some(3),
                ..script("weir", None)
            }
        )
        .await
        .0,
        finished(FinishReason::Length, 4, 3)
    );
    assert_eq!(
        played(
            engine(),
            Request {
                max_tokens: Some(9),
                ..script("weir", None)
            }
        )
        .await
        .0,
        finished(FinishReason::Stop, 4, 4)
    );
}

#[tokio::test(start_paused = true)]
async fn tokens_without_delay_come_at_once() {
    let step = |hex: &str| ScriptStep {
        delay_ms: 0,
        bytes_hex: hex.to_owned(),
    };
    let steps = vec![step("c3"), step(""), step("a9")];
    let recorder = played(
        engine(),
        Request {
            script: Some(steps),
            ..script("", None)
        },
    )
    .await
    .1;
    assert_eq!(
        (recorder.text().as_str(), recorder.times()),
        ("é", vec![Duration::ZERO; 3])
    );
    assert_eq!(recorder.ids(), [0xc3, 0, 0xa9]);
}

#[tokio::test(start_paused = true)]
async fn a_full_sink_keeps_its_token_and_delays_no_other() {
    let engine = engine();
    let slow = submit(&engine, script("abcd", None), 1);
    let free = submit(&engine, script("weir", None), usize::MAX);
    free.end().await;
    assert_eq!(
        (free.times()[3], slow.text().as_str()),
        (Duration::from_millis(40), "a")
    );
    slow.grant(9);
    assert_eq!(slow.end().await, finished(FinishReason::Stop, 4, 4));
    assert_eq!(slow.times(), [10, 40, 50, 60].map(Duration::from_millis));
}

#[tokio::test(start_paused = true)]
async fn a_fault_waits_until_its_token_is_with_the_kernel() {
    let engine = engine();
    let (sink, recorder) = Recorder::new();
    recorder.hold_flush();
    engine
        .submit(script("weir", Some((2, FaultKind::Error))), sink)
        .unwrap();
    recorder.until(Recorder::flush_asked).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!((recorder.text().as_str(), recorder.ended()), ("we", None));
    recorder.release_flush();
    assert_eq!(
        recorder.end().await,
        End::Failed("failed as its script says after token 2".to_owned())
    );
    assert_eq!(engine.stats().running, 0);
}

#[tokio::test(start_paused = true)]
async fn a_fault_before_the_first_token_and_after_the_last() {
    for (at, text) in [(0, ""), (4, "weir")] {
        let (end, recorder) = played(engine(), script("weir", Some((at, FaultKind::Error)))).await;
        assert_eq!(
            end,
            End::Failed(format!("failed as its script says after token {at}"))
        );
        assert_eq!(recorder.text(), text);
    }
    assert_eq!(
        played(engine(), script("weir", Some((5, FaultKind::Error))))
            .await
            .0,
        finished(FinishReason::Stop, 4, 4)
    );
}

#[tokio::test(start_paused = true)]
async fn faults_happen_on_the_first_attempt_only() {
    for kind in [
        FaultKind::Die,
        FaultKind::Hang,
        FaultKind::Error,
        FaultKind::Refuse,
    ] {
        let second = Request {
            attempt: 1,
            ..script("weir", Some((0, kind)))
        };
        assert_eq!(
            played(engine(), second).await.0,
            finished(FinishReason::Stop, 4, 4)
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_hanging_stream_stays_open_until_it_is_cancelled() {
    let engine = engine();
    let recorder = submit(&engine, script("weir", Some((1, FaultKind::Hang))), usize::MAX);
    recorder.tokens(1).await;
    recorder.set_demand(Demand::Stop);
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert_eq!(
        (recorder.text().as_str(), recorder.ended(), engine.stats().running),
        ("w", None, 1)
    );
    recorder.set_demand(Demand::Cancelled);
    assert_eq!(recorder.end().await, End::Dropped);
    assert_eq!(engine.stats().running, 0);
}

#[tokio::test(start_paused = true)]
async fn refuse_at_0_refuses_the_request_and_later_fails_the_stream() {
    let engine = engine();
    let (sink, recorder) = Recorder::new();
    let refused = engine.submit(script("weir", Some((0, FaultKind::Refuse))), sink);
    assert!(matches!(refused, Err(Refusal::Busy(_))));
    assert_eq!(
        (recorder.ended(), engine.stats()),
        (Some(End::Dropped), EngineStats::default())
    );
    let recorder = submit(&engine, script("weir", Some((3, FaultKind::Refuse))), usize::MAX);
    assert_eq!(
        recorder.end().await,
        End::Failed("refused as its script says after token 3".to_owned())
    );
}

#[tokio::test(start_paused = true)]
async fn stop_and_cancel_reach_a_script_between_its_tokens() {
    for (demand, end) in [
        (Demand::Stop, finished(FinishReason::Stop, 4, 1)),
        (Demand::Cancelled, End::Dropped),
    ] {
        let engine = engine();
        let mut slow = script("weir", None);
        slow.script.as_mut().unwrap()[1].delay_ms = 600_000;
        let recorder = submit(&engine, slow, usize::MAX);
        recorder.tokens(1).await;
        let before = tokio::time::Instant::now();
        recorder.set_demand(demand);
        assert_eq!((recorder.end().await, before.elapsed()), (end, Duration::ZERO));
        assert_eq!(engine.stats().running, 0);
    }
}

#[tokio::test]
async fn a_request_without_a_good_script_is_invalid() {
    let bad_step = Request {
        script: Some(vec![ScriptStep {
            delay_ms: 0,
            bytes_hex: "zz".to_owned(),
        }]),
        ..script("", None)
    };
    for bad in [request("scripted", 4, None), script("", None), bad_step] {
        let refused = engine().submit(bad, Recorder::new().0);
        assert!(
            matches!(&refused, Err(Refusal::Invalid(why)) if why.contains("weir_script")),
            "{refused:?}"
        );
    }
}
