//! The validation table: what a body means, or which member is wrong.

use hyper::StatusCode;
use serde_json::{Value, json};
use weir_engine::{FaultKind, chat::Role};

use super::{ApiError, ChatRequest, CompletionRequest, Params, Prompt, params};

fn with(base: Value, members: Value) -> Vec<u8> {
    let mut body = base;
    let (Value::Object(body_members), Value::Object(more)) = (&mut body, members) else {
        panic!("not objects")
    };
    body_members.extend(more);
    serde_json::to_vec(&body).unwrap()
}

fn chat(members: Value) -> Result<ChatRequest, ApiError> {
    let base = json!({"model": "m", "messages": [{"role": "user", "content": "hi"}]});
    ChatRequest::parse(&with(base, members))
}

fn completion(members: Value) -> Result<CompletionRequest, ApiError> {
    CompletionRequest::parse(&with(json!({"model": "m", "prompt": "hi"}), members))
}

fn params(members: Value) -> Params {
    chat(members).unwrap().params
}

/// Status 400, a small body, and the member that is named.
fn param(error: &ApiError) -> Value {
    assert_eq!(error.status, StatusCode::BAD_REQUEST);
    let mut body = Vec::new();
    error.render(&mut body);
    assert!(body.len() < 4096);
    let body: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(body["error"]["type"], "invalid_request_error");
    body["error"]["param"].clone()
}

#[test]
fn bodies_that_are_no_json_object_are_malformed() {
    for body in [
        &b""[..],
        b"   ",
        b"null",
        b"[]",
        b"\"text\"",
        b"17",
        b"{",
        b"{\"model\":",
        b"{\"model\" \"m\"}",
        b"{}}",
        b"\xff\xfe{}",
        b"{\"model\":\"m\",\"model\":\"m\"}",
        b"{\"messages\":tru}",
        b"nonsense",
    ] {
        assert_eq!(
            param(&ChatRequest::parse(body).unwrap_err()),
            Value::Null,
            "{body:?}"
        );
        assert_eq!(
            param(&CompletionRequest::parse(body).unwrap_err()),
            Value::Null,
            "{body:?}"
        );
    }
    let deep = [b"{\"x\":".to_vec(), vec![b'['; 1 << 16]].concat();
    assert_eq!(param(&ChatRequest::parse(&deep).unwrap_err()), Value::Null);
}

#[test]
fn wrong_types_and_values_name_their_member() {
    let table = [
        ("model", vec![json!(null), json!(""), json!(7), json!(["m"])]),
        (
            "max_tokens",
            vec![
                json!(0),
                json!(-1),
                json!(1.5),
                json!("9"),
                json!(true),
                json!(4_294_967_296u64),
            ],
        ),
        ("max_completion_tokens", vec![json!(0), json!(-5), json!([])]),
        ("min_tokens", vec![json!(-1), json!("0")]),
        (
            "n",
            vec![json!(0), json!(-1), json!(129), json!("1"), json!(1e300)],
        ),
        (
            "temperature",
            vec![json!(-0.1), json!(2.1), json!("NaN"), json!("1"), json!({})],
        ),
        ("top_p", vec![json!(1.01), json!(-1), json!(false)]),
        ("top_k", vec![json!(-2), json!(0.5), json!("x")]),
        ("min_p", vec![json!(2), json!(-1)]),
        ("frequency_penalty", vec![json!(3), json!(-2.5), json!("0")]),
        ("presence_penalty", vec![json!(2.01), json!([])]),
        ("seed", vec![json!(1.5), json!("1"), json!(1e30)]),
        (
            "stop",
            vec![
                json!(5),
                json!([1]),
                json!(""),
                json!(["a", ""]),
                json!({}),
                json!(vec!["x"; 17]),
                json!("y".repeat(1025)),
            ],
        ),
        (
            "stop_token_ids",
            vec![
                json!(5),
                json!(["a"]),
                json!([-1]),
                json!([1.5]),
                json!(vec![1; 1025]),
            ],
        ),
        (
            "logit_bias",
            vec![
                json!([]),
                json!({"x": 1}),
                json!({"1": 101}),
                json!({"1": "a"}),
                json!({"-1": 1}),
            ],
        ),
        ("stream", vec![json!("true"), json!(1)]),
        (
            "stream_options",
            vec![
                json!([]),
                json!("x"),
                json!({"include_usage": "yes"}),
                json!([true]),
            ],
        ),
        ("ignore_eos", vec![json!("no"), json!(0)]),
        ("logprobs", vec![json!(true), json!(1)]),
        ("top_logprobs", vec![json!(2)]),
        (
            "weir_script",
            vec![
                json!({}),
                json!([{"delay_ms": 1}]),
                json!([{"bytes_hex": "00", "x": 1}]),
            ],
        ),
        (
            "weir_fault",
            vec![
                json!({"at": 1}),
                json!({"at": 1, "kind": "melt"}),
                json!({"at": -1, "kind": "die"}),
            ],
        ),
    ];
    for (member, values) in table {
        for value in values {
            let error = chat(json!({member: value})).expect_err(&format!("{member} = {value}"));
            assert_eq!(param(&error), member, "{member} = {value}: {}", error.message());
            assert!(error.message().starts_with(member), "{}", error.message());
        }
    }
}

#[test]
fn messages_are_checked_one_by_one() {
    let table = [
        (json!(null), "messages"),
        (json!("hi"), "messages"),
        (json!([]), "messages"),
        (json!(["hi"]), "messages"),
        (json!({"role": "user"}), "messages"),
        (json!([{"content": "hi"}]), "messages[0].role"),
        (json!([{"role": "root", "content": "hi"}]), "messages[0].role"),
        (json!([{"role": 5, "content": "hi"}]), "messages[0].role"),
        (
            json!([{"role": "user", "content": "a"}, {"role": "user"}]),
            "messages[1].content",
        ),
        (json!([{"role": "user", "content": null}]), "messages[0].content"),
        (
            json!([{"role": "assistant", "content": null}]),
            "messages[0].content",
        ),
        (json!([{"role": "user", "content": 5}]), "messages[0].content"),
        (
            json!([{"role": "user", "content": [{"type": "image_url"}]}]),
            "messages[0].content",
        ),
        (
            json!([{"role": "user", "content": [{"type": "text"}]}]),
            "messages[0].content",
        ),
        (json!([{"role": "user", "content": [5]}]), "messages[0].content"),
    ];
    for (messages, member) in table {
        let error = chat(json!({"messages": messages})).expect_err(&messages.to_string());
        assert_eq!(param(&error), member, "{messages}");
    }
    let lone = br#"{"model":"m","messages":[{"role":"user","content":"\ud800"}]}"#;
    assert_eq!(
        param(&ChatRequest::parse(lone).unwrap_err()),
        "messages[0].content"
    );
}

#[test]
fn messages_that_are_right_are_read() {
    let request = chat(json!({"messages": [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b\u{e9}"}], "name": "x"},
        {"role": "assistant", "content": null, "tool_calls": []},
    ]}))
    .unwrap();
    let read: Vec<_> = request
        .messages
        .iter()
        .map(|message| (message.role, message.content.as_str()))
        .collect();
    assert_eq!(
        read,
        [
            (Role::System, "Be brief."),
            (Role::User, "abé"),
            (Role::Assistant, "")
        ]
    );
}

#[test]
fn prompts_have_four_shapes() {
    let prompts = |prompt: Value| completion(json!({"prompt": prompt})).unwrap().prompts;
    let text = |text: &str| Prompt::Text(text.to_owned());
    assert_eq!(prompts(json!("a")), [text("a")]);
    assert_eq!(prompts(json!(["a", "b"])), [text("a"), text("b")]);
    assert_eq!(prompts(json!([1, 2])), [Prompt::Tokens(vec![1, 2])]);
    assert_eq!(
        prompts(json!([[1], [2, 3]])),
        [Prompt::Tokens(vec![1]), Prompt::Tokens(vec![2, 3])]
    );
}

#[test]
fn prompts_that_are_wrong_name_the_prompt() {
    for prompt in [
        json!(null),
        json!(""),
        json!([]),
        json!([""]),
        json!([[]]),
        json!([[1], []]),
        json!(5),
        json!({}),
        json!([1, "a"]),
        json!(["a", 1]),
        json!([-1]),
        json!([1.5]),
        json!([[1], "a"]),
        json!([4_294_967_296u64]),
        json!(vec!["a"; 129]),
    ] {
        let error = completion(json!({"prompt": prompt})).expect_err(&prompt.to_string());
        assert_eq!(param(&error), "prompt", "{prompt}");
    }
    let error = completion(json!({"prompt": ["a", "b"], "n": 65})).unwrap_err();
    assert_eq!(param(&error), "prompt");
}

#[test]
fn what_completions_do_not_offer_is_refused_by_name() {
    for (member, value) in [
        ("echo", json!(true)),
        ("suffix", json!("x")),
        ("best_of", json!(2)),
        ("logprobs", json!(0)),
    ] {
        assert_eq!(param(&completion(json!({member: value})).unwrap_err()), member);
    }
    completion(json!({"echo": false, "suffix": null, "best_of": 2, "n": 2, "logprobs": null})).unwrap();
}

#[test]
fn absent_null_and_unknown_members_are_defaults() {
    let bare = params(json!({}));
    let names = [
        "max_tokens",
        "min_tokens",
        "n",
        "seed",
        "stop",
        "temperature",
        "top_p",
        "logit_bias",
        "stream",
        "stream_options",
        "logprobs",
        "weir_script",
        "weir_fault",
    ];
    let nulls: serde_json::Map<_, _> = names
        .into_iter()
        .map(|name| (name.to_owned(), Value::Null))
        .collect();
    assert_eq!(params(Value::Object(nulls)), bare);
    assert_eq!(
        params(json!({"user": "u", "tools": [], "metadata": {"a": [1]}, "logprobs": false})),
        bare
    );
    assert_eq!(
        (bare.n, bare.stream, bare.max_tokens, bare.sampling.seed),
        (1, false, None, None)
    );
}

#[test]
fn members_that_are_right_arrive() {
    let params = params(json!({
        "max_tokens": 5, "max_completion_tokens": 9, "min_tokens": 2, "ignore_eos": true, "stop": ["a", "b"],
        "stop_token_ids": [7], "n": 3, "seed": -1, "temperature": 0, "top_p": 0.5, "top_k": -1, "min_p": 0.1,
        "frequency_penalty": -2, "presence_penalty": 2, "logit_bias": {"5": -100}, "stream": true,
        "stream_options": {"include_usage": true, "other": 1},
        "weir_script": [{"bytes_hex": "c3"}, {"delay_ms": 5, "bytes_hex": "a9"}],
        "weir_fault": {"at": 1, "kind": "hang"},
    }));
    assert_eq!(
        (params.max_tokens, params.min_tokens, params.ignore_eos, params.n),
        (Some(9), 2, true, 3)
    );
    assert_eq!(
        (params.stop.as_slice(), params.stop_token_ids.as_slice()),
        (&["a".to_owned(), "b".to_owned()][..], &[7][..])
    );
    let sampling = &params.sampling;
    assert_eq!(
        (
            sampling.seed,
            sampling.temperature,
            sampling.top_p,
            sampling.top_k
        ),
        (Some(u64::MAX), 0.0, 0.5, 0)
    );
    assert_eq!(
        (
            sampling.min_p,
            sampling.frequency_penalty,
            sampling.presence_penalty
        ),
        (0.1, -2.0, 2.0)
    );
    assert_eq!(sampling.logit_bias, [(5, -100.0)]);
    assert!(params.stream && params.include_usage);
    assert_eq!(params.script.unwrap().len(), 2);
    assert_eq!(params.fault.unwrap().kind, FaultKind::Hang);
}

#[test]
fn limits_are_as_documented() {
    assert_eq!(
        params(json!({"stop": vec!["x"; params::MAX_STOPS]})).stop.len(),
        params::MAX_STOPS
    );
    assert_eq!(params(json!({"n": params::MAX_CHOICES})).n, params::MAX_CHOICES);
    assert_eq!(
        param(&chat(json!({"min_tokens": 6, "max_tokens": 5})).unwrap_err()),
        "min_tokens"
    );
}

#[test]
fn stream_options_need_a_stream() {
    assert_eq!(
        param(&chat(json!({"stream_options": {}})).unwrap_err()),
        "stream_options"
    );
    let streamed = params(json!({"stream": true, "stream_options": {}}));
    assert!(streamed.stream && !streamed.include_usage);
}

#[test]
fn a_huge_bad_member_makes_a_small_error() {
    let huge = "x".repeat(4 << 20);
    for member in ["temperature", "n", "logit_bias", "stream_options", "weir_fault"] {
        assert_eq!(param(&chat(json!({member: huge})).unwrap_err()), member);
    }
    param(&chat(json!({"messages": [{"role": huge, "content": ""}]})).unwrap_err());
    param(&chat(json!({"messages": [{"role": "user", "content": [{"type": huge}]}]})).unwrap_err());
}
