//! Continuous batching: what a request gets is what it would get alone; memory is admitted, reused and given back.

use weir_model::Threads;
use weir_model::arch::Family;
use weir_model::batch::{Batcher, End, Event, Limits, Refusal, Request};
use weir_model::model::Model;
use weir_model::sample::Sampling;

use crate::{ids, mixed, opened};

fn batcher(family: Family, memory: usize) -> Batcher {
    let model = Model::load(&opened(&mixed(family)), 1, &Threads::new(1).unwrap()).unwrap();
    Batcher::new(
        model,
        Limits {
            memory,
            running: 8,
            waiting: 16,
        },
    )
}

fn request(length: usize, seed: usize, max_tokens: usize) -> Request {
    let sampling = Sampling {
        temperature: 0.9,
        top_p: 0.95,
        seed: seed as u64,
        ..Sampling::default()
    };
    Request {
        prompt: ids(length, seed),
        max_tokens,
        min_tokens: 0,
        sampling,
        ends: Vec::new(),
    }
}

const PLENTY: usize = 1 << 30;

/// A request's tokens; how it ended and how many prompt tokens were reused.
type Answer = (Vec<u32>, Option<(End, usize)>);

/// Runs to the end and returns each request's answer.
fn drain(batcher: &mut Batcher, requests: &[u64]) -> Vec<Answer> {
    let mut events = Vec::new();
    while !batcher.is_idle() {
        batcher.step(&mut events);
    }
    requests
        .iter()
        .map(|request| collect(&events, *request))
        .collect()
}

fn collect(events: &[Event], wanted: u64) -> Answer {
    let (mut tokens, mut ended) = (Vec::new(), None);
    for event in events {
        match event {
            Event::Token { request, id } if *request == wanted => tokens.push(*id),
            Event::Ended { request, end, reused } if *request == wanted => ended = Some((*end, *reused)),
            Event::Failed { request, fault } if *request == wanted => panic!("{fault}"),
            _ => {}
        }
    }
    (tokens, ended)
}

#[test]
fn seeded_answers_repeat_whatever_runs_beside() {
    for family in [Family::Gemma3, Family::Llama] {
        let mut one_by_one = batcher(family, PLENTY);
        let mut run = |seed: usize| {
            let id = one_by_one.submit(request(10 + 23 * seed, seed, 12)).unwrap();
            drain(&mut one_by_one, &[id]).remove(0).0
        };
        let alone: Vec<Vec<u32>> = (0..8).map(&mut run).collect();
        let mut together = batcher(family, PLENTY);
        let mut numbers = Vec::new();
        let mut events = Vec::new();
        for seed in 0..8 {
            numbers.push(together.submit(request(10 + 23 * seed, seed, 12)).unwrap());
            together.step(&mut events);
        }
        while !together.is_idle() {
            together.step(&mut events);
        }
        for (number, alone) in numbers.iter().zip(&alone) {
            let (tokens, ended) = collect(&events, *number);
            assert_eq!(&tokens, alone, "{family:?}");
            assert_eq!(ended, Some((End::Length, 0)));
        }
    }
}

#[test]
fn the_next_turn_of_a_chat_computes_only_what_is_new() {
    for family in [Family::Gemma3, Family::Qwen3] {
        let mut warm = batcher(family, PLENTY);
        let first = warm.submit(request(40, 1, 8)).unwrap();
        let (answer, _) = drain(&mut warm, &[first]).remove(0);
        let mut next = request(40, 1, 8);
        next.prompt.extend(&answer);
        next.prompt.extend(ids(9, 5));
        let second = warm.submit(next.clone()).unwrap();
        let (tokens, ended) = drain(&mut warm, &[second]).remove(0);
        let mut cold = batcher(family, PLENTY);
        let fresh = cold.submit(next).unwrap();
        let (expected, _) = drain(&mut cold, &[fresh]).remove(0);
        assert_eq!(tokens, expected, "{family:?}");
        // The last token of the answer was never fed.
        assert_eq!(ended, Some((End::Length, 47)), "{family:?}");
    }
}

#[test]
fn an_end_token_stops_and_is_not_given_out() {
    let mut first = batcher(Family::Llama, PLENTY);
    let number = first.submit(request(10, 1, 20)).unwrap();
    let (tokens, _) = drain(&mut first, &[number]).remove(0);
    let mut stopping = request(10, 1, 20);
    stopping.ends = vec![tokens[7]];
    let until = tokens.iter().position(|id| *id == tokens[7]).unwrap();
    let mut second = batcher(Family::Llama, PLENTY);
    let number = second.submit(stopping).unwrap();
    let (stopped, ended) = drain(&mut second, &[number]).remove(0);
    assert_eq!(stopped, tokens[..until]);
    assert_eq!(ended.map(|ended| ended.0), Some(End::Stop));
}

#[test]
fn an_answer_does_not_end_before_its_least_length() {
    let mut first = batcher(Family::Llama, PLENTY);
    let number = first.submit(request(10, 1, 20)).unwrap();
    let (tokens, _) = drain(&mut first, &[number]).remove(0);
    let stopping = Request {
        ends: vec![tokens[0]],
        min_tokens: 5,
        ..request(10, 1, 20)
    };
    let number = first.submit(stopping).unwrap();
    let (longer, _) = drain(&mut first, &[number]).remove(0);
    assert!(
        longer.len() >= 5 && !longer[..5].contains(&tokens[0]),
        "{longer:?}"
    );
}

#[test]
fn a_paused_request_sits_out_and_goes_on_unchanged() {
    let mut batcher = batcher(Family::Gemma3, PLENTY);
    let paused = batcher.submit(request(20, 1, 10)).unwrap();
    let other = batcher.submit(request(20, 2, 10)).unwrap();
    let mut events = Vec::new();
    batcher.step(&mut events);
    batcher.pause(paused, true);
    while batcher.can_step() {
        batcher.step(&mut events);
    }
    assert_eq!(
        (collect(&events, paused).0.len(), collect(&events, other).0.len()),
        (1, 10)
    );
    batcher.pause(paused, false);
    while batcher.can_step() {
        batcher.step(&mut events);
    }
    let alone = batcher.submit(request(20, 1, 10)).unwrap();
    assert_eq!(collect(&events, paused).0, drain(&mut batcher, &[alone])[0].0);
}

#[test]
fn what_never_fits_is_refused_with_numbers() {
    let mut batcher = batcher(Family::Llama, 1 << 19);
    let context = batcher.submit(request(500, 1, 13)).unwrap_err();
    assert_eq!(
        context,
        Refusal::Context {
            prompt: 500,
            max_tokens: 13,
            context: 512
        }
    );
    assert!(matches!(
        batcher.submit(request(400, 1, 13)),
        Err(Refusal::Memory { tokens: 413, .. })
    ));
    assert!(matches!(
        batcher.submit(request(0, 1, 1)),
        Err(Refusal::Prompt(_))
    ));
    let huge = Request {
        prompt: vec![1 << 30],
        ..request(1, 1, 1)
    };
    assert!(matches!(batcher.submit(huge), Err(Refusal::Prompt(_))));
    let bad = Request {
        sampling: Sampling {
            top_p: 7.0,
            ..Sampling::default()
        },
        ..request(1, 1, 1)
    };
    assert!(matches!(batcher.submit(bad), Err(Refusal::Sampling(_))));
    assert!(matches!(
        batcher.submit(request(5, 1, usize::MAX)),
        Err(Refusal::Context { .. })
    ));
    for _ in 0..24 {
        batcher.submit(request(5, 1, 5)).unwrap();
    }
    assert_eq!(batcher.submit(request(5, 1, 5)), Err(Refusal::Busy(24)));
}

#[test]
fn requests_wait_for_memory_and_all_finish() {
    let probe = batcher(Family::Llama, PLENTY);
    let one = probe.model().sequence_bytes(60);
    let mut batcher = batcher(Family::Llama, 2 * one);
    let numbers: Vec<u64> = (0..6)
        .map(|seed| batcher.submit(request(50, seed, 10)).unwrap())
        .collect();
    let mut events = Vec::new();
    while !batcher.is_idle() {
        batcher.step(&mut events);
        let (running, kept) = batcher.memory();
        assert!(
            batcher.load().0 <= 2 && running + kept <= 2 * one,
            "{running} + {kept} of {}",
            2 * one
        );
    }
    for number in numbers {
        assert_eq!(collect(&events, number).0.len(), 10);
    }
}

#[test]
fn cancel_frees_memory_at_once() {
    let mut batcher = batcher(Family::Llama, PLENTY);
    let first = batcher.submit(request(50, 1, 100)).unwrap();
    let second = batcher.submit(request(50, 2, 3)).unwrap();
    let mut events = Vec::new();
    batcher.step(&mut events);
    let before = batcher.memory().0;
    batcher.cancel(first);
    assert!(batcher.memory().0 < before);
    assert_eq!(drain(&mut batcher, &[second])[0].0.len(), 3);
    assert_eq!(batcher.memory().0, 0);
    batcher.cancel(first);
}
