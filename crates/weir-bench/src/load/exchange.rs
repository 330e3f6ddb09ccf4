//! One request and its response: stamps, then the one failure that applies.

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::{Request, body::Incoming, header};

use super::{
    clock::Clock,
    config::{LoadConfig, Target},
    connection::Connection,
    event::{self, Meaning},
    record::{Failure, Record},
    sse::Sse,
};

/// What has been seen of a response; stays readable when the exchange is cut short.
#[derive(Debug, Default)]
pub(super) struct Seen {
    done: bool,
    error_event: bool,
    /// Set when the exchange came to its end, clean or not.
    pub(super) ended: bool,
    /// Why no connection, or why it was lost.
    pub(super) lost: Option<String>,
}

/// Builds request `record.index`.
pub(super) fn request(
    config: &LoadConfig,
    target: &Target,
    record: &Record,
) -> Result<Request<Full<Bytes>>, hyper::http::Error> {
    let mut request = Request::post(&target.path)
        .header(header::HOST, &target.authority)
        .header(header::CONTENT_TYPE, "application/json")
        .header(header::ACCEPT, "text/event-stream")
        .header("x-request-id", &record.request_id);
    if let Some(key) = &config.api_key {
        request = request.header(header::AUTHORIZATION, format!("Bearer {key}"));
    }
    request.body(Full::from(super::prompt::body(config, record.index)))
}

/// Sends `request` and reads the response to its end, into `record` and `seen`. Not bounded in time.
pub(super) async fn run(
    connection: &mut Connection,
    request: Request<Full<Bytes>>,
    clock: Clock,
    record: &mut Record,
    seen: &mut Seen,
) {
    match connection.send(request).await {
        Err(error) => seen.lost = Some(format!("no response: {}", with_cause(&error))),
        Ok(response) => {
            record.t_headers = Some(clock.now());
            record.status = Some(response.status().as_u16());
            if response.status().as_u16() == 200 {
                stream(connection, response.into_body(), clock, record, seen).await;
            } else {
                let body = connection
                    .drive(Limited::new(response.into_body(), 4_096).collect())
                    .await;
                let text = body.map(http_body_util::Collected::to_bytes).unwrap_or_default();
                record.detail = Some(event::shortened(&String::from_utf8_lossy(&text)));
            }
        }
    }
    seen.ended = true;
}

async fn stream(
    connection: &mut Connection,
    mut body: Incoming,
    clock: Clock,
    record: &mut Record,
    seen: &mut Seen,
) {
    let mut sse = Sse::default();
    while let Some(frame) = connection.drive(body.frame()).await {
        let now = clock.now();
        let frame = match frame {
            Ok(frame) => frame,
            Err(error) => {
                seen.lost = Some(format!("the body broke off: {}", with_cause(&error)));
                return;
            }
        };
        let Ok(data) = frame.into_data() else { continue };
        record.t_first_byte.get_or_insert(now);
        record.body_bytes += data.len() as u64;
        if sse
            .push(&data, |event| {
                take(event::read(event.name, event.data), now, record, seen)
            })
            .is_err()
        {
            seen.error_event = true;
            record.detail = Some("an event is over 4 MiB".to_owned());
            return;
        }
    }
}

fn with_cause(error: &hyper::Error) -> String {
    match std::error::Error::source(error) {
        Some(cause) => format!("{error}: {cause}"),
        None => error.to_string(),
    }
}

fn take(meaning: Meaning, now: u64, record: &mut Record, seen: &mut Seen) {
    match meaning {
        Meaning::Done => seen.done = true,
        Meaning::Error(what) => {
            seen.error_event = true;
            record.detail.get_or_insert(what);
        }
        Meaning::Chunk(chunk) => {
            let counted = chunk.usage.map(|usage| usage.completion_tokens);
            if chunk.content {
                record.t_first_content.get_or_insert(now);
                record.t_last_content = Some(now);
                record.content.push(now);
                let before = record.usage.map_or(0, |usage| usage.completion_tokens);
                record
                    .content_tokens
                    .extend(counted.map(|total| total.saturating_sub(before)));
            }
            record.usage = chunk.usage.or(record.usage);
            record.finish_reason = chunk.finish_reason.or(record.finish_reason.take());
        }
    }
}

/// Settles how the request ended; `cut` says why the exchange was cut short, if it was.
pub(super) fn settle(record: &mut Record, seen: Seen, cut: Option<Failure>, osl: u32) {
    let chunks = u32::try_from(record.content.len()).unwrap_or(u32::MAX);
    record.tokens = record.usage.map_or(chunks, |usage| usage.completion_tokens);
    record.failure = match record.status {
        _ if cut == Some(Failure::Cancelled) => cut,
        None if seen.lost.is_some() => Some(Failure::Connect),
        _ if cut.is_some() => cut,
        None => Some(Failure::Connect),
        Some(200) => failure_of_stream(record, &seen, osl),
        Some(_) => Some(Failure::Status),
    };
    record.detail = match record.failure {
        None => None,
        Some(Failure::WrongTokenCount) => Some(format!("{} tokens, not {osl}", record.tokens)),
        Some(_) => record.detail.take().or(seen.lost),
    };
}

fn failure_of_stream(record: &Record, seen: &Seen, osl: u32) -> Option<Failure> {
    let checks = [
        (seen.error_event, Failure::ErrorEvent),
        (!seen.done, Failure::NoDone),
        (record.content.is_empty(), Failure::NoContent),
        (record.tokens != osl, Failure::WrongTokenCount),
    ];
    checks
        .into_iter()
        .find_map(|(applies, failure)| applies.then_some(failure))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::record::Usage;

    fn streamed(tokens: u32) -> Record {
        let usage = Some(Usage {
            prompt_tokens: 1,
            completion_tokens: tokens,
        });
        Record {
            status: Some(200),
            content: vec![1, 2],
            usage,
            ..Record::default()
        }
    }

    fn failure(mut record: Record, seen: Seen, cut: Option<Failure>) -> Option<Failure> {
        settle(&mut record, seen, cut, 4);
        record.failure
    }

    fn done() -> Seen {
        Seen {
            done: true,
            ended: true,
            ..Seen::default()
        }
    }

    fn lost() -> Seen {
        Seen {
            lost: Some("reset".into()),
            ended: true,
            ..Seen::default()
        }
    }

    #[test]
    fn each_way_to_end_has_its_class() {
        assert_eq!(failure(streamed(4), done(), None), None);
        assert_eq!(failure(streamed(3), done(), None), Some(Failure::WrongTokenCount));
        assert_eq!(
            failure(
                streamed(4),
                Seen {
                    done: false,
                    ..done()
                },
                None
            ),
            Some(Failure::NoDone)
        );
        assert_eq!(failure(streamed(4), lost(), None), Some(Failure::NoDone));
        assert_eq!(
            failure(
                streamed(4),
                Seen {
                    error_event: true,
                    ..done()
                },
                None
            ),
            Some(Failure::ErrorEvent)
        );
        let silent = Record {
            content: vec![],
            ..streamed(4)
        };
        assert_eq!(failure(silent, done(), None), Some(Failure::NoContent));
        let refused = Record {
            status: Some(503),
            ..Record::default()
        };
        assert_eq!(
            failure(
                refused,
                Seen {
                    ended: true,
                    ..Seen::default()
                },
                None
            ),
            Some(Failure::Status)
        );
        assert_eq!(failure(Record::default(), lost(), None), Some(Failure::Connect));
        assert_eq!(
            failure(streamed(2), Seen::default(), Some(Failure::Timeout)),
            Some(Failure::Timeout)
        );
        assert_eq!(
            failure(Record::default(), Seen::default(), Some(Failure::Timeout)),
            Some(Failure::Timeout)
        );
        assert_eq!(
            failure(streamed(2), Seen::default(), Some(Failure::Cancelled)),
            Some(Failure::Cancelled)
        );
    }

    #[test]
    fn without_usage_the_events_are_counted() {
        let mut record = Record {
            usage: None,
            ..streamed(0)
        };
        settle(&mut record, done(), None, 2);
        assert_eq!((record.tokens, record.failure), (2, None));
    }
}
