//! The generation parameters that both endpoints share.
//!
//! Unknown members are ignored. Token ids are checked against a vocabulary later, once the model is known. Invariant:
//! a [`Params`] holds only values that an engine may be given.

use serde::Deserialize;
use serde_json::value::RawValue;
use weir_engine::{Fault, Sampling, ScriptStep};

use super::{ApiError, fields::Field};

/// Most choices of one request, prompts times `n`.
pub(crate) const MAX_CHOICES: u32 = 128;
/// Most stop strings.
pub(crate) const MAX_STOPS: usize = 16;
/// Longest stop string, in bytes.
pub(crate) const MAX_STOP_BYTES: usize = 1024;
/// Most entries of `stop_token_ids` and of `logit_bias`.
pub(crate) const MAX_TOKEN_IDS: usize = 1024;

/// The members of a request, unread.
#[derive(Debug, Deserialize)]
pub(crate) struct RawParams<'a> {
    #[serde(borrow)]
    model: Option<&'a RawValue>,
    max_tokens: Option<&'a RawValue>,
    max_completion_tokens: Option<&'a RawValue>,
    min_tokens: Option<&'a RawValue>,
    ignore_eos: Option<&'a RawValue>,
    stop: Option<&'a RawValue>,
    stop_token_ids: Option<&'a RawValue>,
    n: Option<&'a RawValue>,
    seed: Option<&'a RawValue>,
    temperature: Option<&'a RawValue>,
    top_p: Option<&'a RawValue>,
    top_k: Option<&'a RawValue>,
    min_p: Option<&'a RawValue>,
    frequency_penalty: Option<&'a RawValue>,
    presence_penalty: Option<&'a RawValue>,
    logit_bias: Option<&'a RawValue>,
    stream: Option<&'a RawValue>,
    stream_options: Option<&'a RawValue>,
    logprobs: Option<&'a RawValue>,
    top_logprobs: Option<&'a RawValue>,
    weir_script: Option<&'a RawValue>,
    weir_fault: Option<&'a RawValue>,
}

/// What to generate, whatever the prompt.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Params {
    pub(crate) model: String,
    pub(crate) max_tokens: Option<u32>,
    pub(crate) min_tokens: u32,
    pub(crate) ignore_eos: bool,
    pub(crate) stop: Vec<String>,
    pub(crate) stop_token_ids: Vec<u32>,
    pub(crate) n: u32,
    pub(crate) sampling: Sampling,
    pub(crate) stream: bool,
    pub(crate) include_usage: bool,
    pub(crate) script: Option<Vec<ScriptStep>>,
    pub(crate) fault: Option<Fault>,
}

impl RawParams<'_> {
    /// Reads all members.
    pub(crate) fn read(&self) -> Result<Params, ApiError> {
        Field::new("logprobs", self.logprobs).unsupported(&["false"], NO_LOGPROBS)?;
        Field::new("top_logprobs", self.top_logprobs).unsupported(&["0"], NO_LOGPROBS)?;
        let stream = Field::new("stream", self.stream).flag()?;
        let max_tokens = Field::new("max_tokens", self.max_tokens).count(1)?;
        let max_tokens = Field::new("max_completion_tokens", self.max_completion_tokens)
            .count(1)?
            .or(max_tokens);
        Ok(Params {
            model: self.model()?,
            max_tokens,
            min_tokens: self.min_tokens(max_tokens)?,
            ignore_eos: Field::new("ignore_eos", self.ignore_eos).flag()?,
            stop: self.stop()?,
            stop_token_ids: self.stop_token_ids()?,
            n: Field::new("n", self.n)
                .integer(1..=i64::from(MAX_CHOICES))?
                .map_or(1, |n| n.try_into().unwrap_or(1)),
            sampling: self.sampling()?,
            stream,
            include_usage: self.include_usage(stream)?,
            script: self.script()?,
            fault: self.fault()?,
        })
    }

    fn model(&self) -> Result<String, ApiError> {
        let field = Field::new("model", self.model);
        match field.string()? {
            Some(model) if !model.is_empty() => Ok(model),
            _ => Err(field.error("must name a model; GET /v1/models lists them")),
        }
    }

    fn min_tokens(&self, max_tokens: Option<u32>) -> Result<u32, ApiError> {
        let field = Field::new("min_tokens", self.min_tokens);
        let min = field.count(0)?.unwrap_or(0);
        match max_tokens {
            Some(max) if min > max => Err(field.error(format_args!("is {min}, more than max_tokens, {max}"))),
            _ => Ok(min),
        }
    }

    fn stop(&self) -> Result<Vec<String>, ApiError> {
        let field = Field::new("stop", self.stop);
        let what = "a string or an array of strings";
        let stops: Vec<String> = match field.first() {
            Some(b'"') => field.string()?.into_iter().collect(),
            _ => field.parse(what)?.unwrap_or_default(),
        };
        if stops.len() > MAX_STOPS {
            return Err(field.error(format_args!(
                "has {} strings; at most {MAX_STOPS} are taken",
                stops.len()
            )));
        }
        if stops.iter().any(String::is_empty) {
            return Err(field.error("has an empty string"));
        }
        if stops.iter().any(|stop| stop.len() > MAX_STOP_BYTES) {
            return Err(field.error(format_args!("has a string over {MAX_STOP_BYTES} bytes")));
        }
        Ok(stops)
    }

    fn stop_token_ids(&self) -> Result<Vec<u32>, ApiError> {
        let field = Field::new("stop_token_ids", self.stop_token_ids);
        let ids: Vec<u32> = field.parse("an array of token ids")?.unwrap_or_default();
        if ids.len() > MAX_TOKEN_IDS {
            return Err(field.error(format_args!(
                "has {} ids; at most {MAX_TOKEN_IDS} are taken",
                ids.len()
            )));
        }
        Ok(ids)
    }

    fn sampling(&self) -> Result<Sampling, ApiError> {
        let default = Sampling::default();
        let penalty = |name, raw| Field::new(name, raw).number(-2.0..=2.0);
        let seed = Field::new("seed", self.seed).integer(i64::MIN..=i64::MAX)?;
        // -1 is vLLM's spelling of "off".
        let top_k = Field::new("top_k", self.top_k).integer(-1..=i64::from(u32::MAX))?;
        Ok(Sampling {
            temperature: Field::new("temperature", self.temperature)
                .number(0.0..=2.0)?
                .unwrap_or(default.temperature),
            top_p: Field::new("top_p", self.top_p)
                .number(0.0..=1.0)?
                .unwrap_or(default.top_p),
            top_k: top_k.and_then(|k| u32::try_from(k).ok()).unwrap_or(default.top_k),
            min_p: Field::new("min_p", self.min_p)
                .number(0.0..=1.0)?
                .unwrap_or(default.min_p),
            frequency_penalty: penalty("frequency_penalty", self.frequency_penalty)?.unwrap_or_default(),
            presence_penalty: penalty("presence_penalty", self.presence_penalty)?.unwrap_or_default(),
            logit_bias: self.logit_bias()?,
            seed: seed.map(i64::cast_unsigned),
        })
    }

    fn logit_bias(&self) -> Result<Vec<(u32, f32)>, ApiError> {
        let field = Field::new("logit_bias", self.logit_bias);
        let what = "an object of numbers from -100 to 100 by token id";
        let bias: std::collections::BTreeMap<u32, f32> = field.parse(what)?.unwrap_or_default();
        if bias.len() > MAX_TOKEN_IDS {
            return Err(field.error(format_args!(
                "has {} entries; at most {MAX_TOKEN_IDS} are taken",
                bias.len()
            )));
        }
        if bias.values().any(|value| !(-100.0..=100.0).contains(value)) {
            return Err(field.error(format_args!("must be {what}")));
        }
        Ok(bias.into_iter().collect())
    }

    fn include_usage(&self, stream: bool) -> Result<bool, ApiError> {
        #[derive(Deserialize)]
        struct Options {
            include_usage: Option<bool>,
        }
        let field = Field::new("stream_options", self.stream_options);
        // A struct would also be read from an array.
        if field.first().is_some_and(|first| first != b'{') {
            return Err(field.expected("an object"));
        }
        let options: Option<Options> = field.parse("an object whose include_usage is true or false")?;
        match options {
            Some(_) if !stream => Err(field.error("needs \"stream\": true")),
            options => Ok(options.and_then(|options| options.include_usage).unwrap_or(false)),
        }
    }

    fn script(&self) -> Result<Option<Vec<ScriptStep>>, ApiError> {
        let what = "an array of {\"delay_ms\": milliseconds, \"bytes_hex\": \"...\"}";
        Field::new("weir_script", self.weir_script).parse(what)
    }

    fn fault(&self) -> Result<Option<Fault>, ApiError> {
        let what = "an object {\"at\": token, \"kind\": \"die\", \"hang\", \"error\" or \"refuse\"}";
        Field::new("weir_fault", self.weir_fault).parse(what)
    }
}

const NO_LOGPROBS: &str = "is not available: no engine here reports log probabilities";
