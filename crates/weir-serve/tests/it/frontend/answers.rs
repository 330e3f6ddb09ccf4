//! What answers look like, streamed and whole.

use serde_json::{Value, json};

use super::{Answer, CHAT, COMPLETIONS, FrontendConfig, Rig, Streamed, letters, script, silent};

/// The same request streamed and whole: text, end and usage of both are equal.
async fn both(rig: &Rig, body: &Value) -> Streamed {
    let whole = rig.post(COMPLETIONS, body).await;
    assert_eq!(whole.status, 200, "{whole:?}");
    let whole = whole.json();
    let mut body = body.clone();
    body["stream"] = json!(true);
    body["stream_options"] = json!({"include_usage": true});
    let streamed = Streamed::read(&rig.post(COMPLETIONS, &body).await);
    assert!(streamed.done && streamed.error.is_none());
    assert_eq!(whole["choices"][0]["text"], streamed.text());
    assert_eq!(
        json!([whole["choices"][0]["finish_reason"]]),
        json!(streamed.finish)
    );
    assert_eq!(Some(&whole["usage"]), streamed.usage.as_ref());
    streamed
}

#[tokio::test]
async fn one_event_carries_one_token() {
    let rig = Rig::start(1).await;
    let streamed = both(&rig, &letters(20, json!({}))).await;
    assert_eq!(streamed.texts, ('a'..='t').map(String::from).collect::<Vec<_>>());
    assert_eq!(streamed.finish, ["stop"]);
    assert_eq!(streamed.usage.unwrap()["completion_tokens"], 20);
    rig.idle().await;
}

#[tokio::test]
async fn a_character_leaves_with_its_last_token_and_all_tokens_count() {
    let rig = Rig::start(1).await;
    let tokens: [&[u8]; 7] = [
        b"a",
        b"\xc3",
        b"\xa9",
        b"\xf0\x9f",
        b"\x9a",
        b"\x80!",
        b"\xe2\x82",
    ];
    let streamed = both(&rig, &script(tokens, json!({}))).await;
    assert_eq!(streamed.texts, ["a", "é", "🚀!", "\u{fffd}"]);
    assert_eq!(streamed.usage.unwrap()["completion_tokens"], 7);
}

#[tokio::test]
async fn stop_strings_are_found_across_tokens_and_never_shown() {
    let rig = Rig::start(1).await;
    let tokens = ["go S", "TO", "P on", "x"];
    let streamed = both(&rig, &script(tokens, json!({"stop": ["STOP"]}))).await;
    assert_eq!(
        (streamed.texts.as_slice(), streamed.finish.as_slice()),
        (&["go ".to_owned()][..], &["stop".to_owned()][..])
    );
    assert_eq!(streamed.usage.unwrap()["completion_tokens"], 3);
    let streamed = both(&rig, &script(["x", "ab"], json!({"stop": "abcd"}))).await;
    assert_eq!(streamed.texts, ["x", "ab"]);
    let streamed = both(&rig, &script(["STOP"], json!({"stop": ["x", "STOP"]}))).await;
    assert_eq!(
        (streamed.text().as_str(), streamed.finish.as_slice()),
        ("", &["stop".to_owned()][..])
    );
    rig.idle().await;
}

#[tokio::test]
async fn a_limit_ends_with_length() {
    let rig = Rig::start(1).await;
    let streamed = both(&rig, &letters(9, json!({"max_tokens": 3}))).await;
    assert_eq!(
        (streamed.text().as_str(), streamed.finish.as_slice()),
        ("abc", &["length".to_owned()][..])
    );
}

#[tokio::test]
async fn line_separators_are_escaped_on_the_wire() {
    let rig = Rig::start(1).await;
    let answer = rig
        .post(
            COMPLETIONS,
            &script(["a\u{2028}b\u{85}", "\r\n\n"], json!({"stream": true})),
        )
        .await;
    let raw = String::from_utf8(answer.body.clone()).unwrap();
    assert!(
        raw.contains(r#""text":"a\u2028b\u0085""#) && raw.contains(r#""text":"\r\n\n""#),
        "{raw}"
    );
    assert_eq!(Streamed::read(&answer).text(), "a\u{2028}b\u{85}\r\n\n");
}

fn chat(members: Value) -> Value {
    let mut body = json!({"model": "mock", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 8});
    body.as_object_mut()
        .unwrap()
        .extend(members.as_object().unwrap().clone());
    body
}

#[tokio::test]
async fn a_chats_role_comes_once_with_the_first_token() {
    let rig = Rig::start(1).await;
    let answer = rig.post(CHAT, &chat(json!({"stream": true}))).await;
    assert!(
        answer
            .header("content-type")
            .unwrap()
            .starts_with("text/event-stream")
    );
    assert_eq!(answer.header("cache-control"), Some("no-cache"));
    assert_eq!(answer.header("x-accel-buffering"), Some("no"));
    assert_eq!(answer.header("connection"), None);
    let events = answer.events();
    let delta = |event: &String| serde_json::from_str::<Value>(event).unwrap()["choices"][0]["delta"].clone();
    let first = delta(&events[0]);
    assert_eq!(first["role"], "assistant");
    assert_ne!(first["content"], "");
    assert_eq!(
        events.iter().filter(|event| event.contains("\"role\"")).count(),
        1
    );
    let streamed = Streamed::read(&answer);
    assert_eq!(
        (
            streamed.texts.len(),
            streamed.finish.len(),
            streamed.usage,
            streamed.done
        ),
        (8, 1, None, true)
    );
}

#[tokio::test]
async fn every_choice_has_its_index_and_one_end() {
    let rig = Rig::start(2).await;
    let body = chat(json!({"n": 5, "seed": 7, "max_tokens": 6}));
    let whole = rig.post(CHAT, &body).await.json();
    let texts: Vec<_> = whole["choices"]
        .as_array()
        .unwrap()
        .iter()
        .map(|c| c["message"]["content"].clone())
        .collect();
    assert_eq!(texts.len(), 5);
    assert_eq!(
        (
            &whole["usage"]["completion_tokens"],
            &whole["choices"][4]["index"]
        ),
        (&json!(30), &json!(4))
    );
    let mut body = body.clone();
    body["stream"] = json!(true);
    let mut streamed = vec![(String::new(), 0, 0); 5];
    for event in rig
        .post(CHAT, &body)
        .await
        .events()
        .iter()
        .filter(|event| *event != "[DONE]")
    {
        let choice = serde_json::from_str::<Value>(event).unwrap()["choices"][0].clone();
        let (text, roles, ends) = &mut streamed[choice["index"].as_u64().unwrap() as usize];
        text.push_str(choice["delta"]["content"].as_str().unwrap_or_default());
        *roles += u32::from(choice["delta"].get("role").is_some());
        *ends += u32::from(!choice["finish_reason"].is_null());
    }
    for ((text, roles, ends), whole) in streamed.iter().zip(texts) {
        assert_eq!((json!(text), *roles, *ends), (whole, 1, 1));
    }
    rig.idle().await;
}

#[tokio::test]
async fn a_choice_that_ends_early_says_so_early() {
    let rig = Rig::start(1).await;
    let mut client = rig.client().await;
    let prompts = json!({"prompt": ["one", "two"], "stream": true, "max_tokens": 2});
    client.post(COMPLETIONS, &letters(2, prompts)).await;
    let streamed = Streamed::read(&client.answer().await);
    assert_eq!((streamed.texts.len(), streamed.finish.len()), (4, 2));
}

#[tokio::test]
async fn several_prompts_are_choices_and_their_tokens_count_once() {
    let rig = Rig::start(1).await;
    let one = |prompt: Value| json!({"model": "mock", "prompt": prompt, "max_tokens": 4, "n": 2, "seed": 1});
    let first = rig.post(COMPLETIONS, &one(json!([1, 2, 3]))).await.json();
    let second = rig.post(COMPLETIONS, &one(json!([4, 5]))).await.json();
    let together = rig
        .post(COMPLETIONS, &one(json!([[1, 2, 3], [4, 5]])))
        .await
        .json();
    assert_eq!(together["usage"]["prompt_tokens"], 5);
    for (index, alone) in [&first, &first, &second, &second].into_iter().enumerate() {
        assert_eq!(
            together["choices"][index]["text"],
            alone["choices"][index % 2]["text"]
        );
    }
}

#[tokio::test]
async fn a_seed_repeats_an_answer_and_no_seed_does_not() {
    let rig = Rig::start(2).await;
    let text =
        async |members: Value| rig.post(CHAT, &chat(members)).await.json()["choices"][0]["message"].clone();
    assert_eq!(text(json!({"seed": -3})).await, text(json!({"seed": -3})).await);
    assert_ne!(text(json!({})).await, text(json!({})).await);
}

#[tokio::test]
async fn an_early_role_does_not_wait_for_the_first_token() {
    let rig = Rig::with(
        1,
        FrontendConfig {
            early_role: true,
            ..FrontendConfig::default()
        },
    )
    .await;
    let mut client = rig.client().await;
    let mut body = silent(json!({"stream": true, "messages": [{"role": "user", "content": "hi"}]}));
    client.post(CHAT, &body).await;
    assert!(client.head().await.starts_with("HTTP/1.1 200"));
    let event = String::from_utf8(client.chunk().await).unwrap();
    assert!(
        event.contains(r#""delta":{"role":"assistant","content":""}"#),
        "{event}"
    );
    drop(client);
    rig.idle().await;
    body["weir_script"] = letters(2, json!({}))["weir_script"].clone();
    let streamed = Streamed::read(&rig.post(CHAT, &body).await);
    assert_eq!(
        (streamed.texts, streamed.done),
        (vec![String::new(), "a".to_owned(), "b".to_owned()], true)
    );
    body["weir_fault"] = json!({"at": 0, "kind": "error"});
    let broken = Streamed::read(&rig.post(CHAT, &body).await);
    assert_eq!(broken.broken()["code"], "engine_error");
}

#[tokio::test]
async fn models_are_listed_and_found() {
    let rig = Rig::start(1).await;
    let list = rig.get("/v1/models").await.json();
    let ids: Vec<_> = list["data"]
        .as_array()
        .unwrap()
        .iter()
        .map(|model| model["id"].clone())
        .collect();
    assert_eq!(ids, ["mock", "scripted"]);
    assert_eq!(rig.get("/v1/models/mock").await.json()["id"], "mock");
    assert_eq!(rig.get("/v1/models/none").await.error_code(), "model_not_found");
}

#[tokio::test]
async fn a_request_id_is_echoed_or_made() {
    let rig = Rig::start(1).await;
    let with = async |id: &str| -> Answer {
        let mut client = rig.client().await;
        client
            .send(format!(
                "GET /live HTTP/1.1\r\nhost: x\r\nx-request-id: {id}\r\n\r\n"
            ))
            .await;
        client.answer().await
    };
    assert_eq!(with("my-id.7").await.header("x-request-id"), Some("my-id.7"));
    let made = with(&"x".repeat(129))
        .await
        .header("x-request-id")
        .unwrap()
        .to_owned();
    assert!(made.starts_with("req-"), "{made}");
    assert_ne!(rig.get("/live").await.header("x-request-id"), Some(made.as_str()));
}
