//! Chat templates: the one in the file, one given by the operator, or a built-in one per architecture.
//!
//! Templates come from strangers: rendering has a budget of instructions, of output and of recursion, and a template that
//! loops or raises is an error, never a hang.

use minijinja::syntax::SyntaxConfig;
use minijinja::value::Serde;
use minijinja::{Environment, Error, ErrorKind, Value};
use serde::Serialize;

use crate::arch::Family;

/// Instructions a rendering may take.
const FUEL: u64 = 2_000_000;
/// Bytes a rendering may give.
const MAX_OUTPUT: usize = 4 << 20;
/// Bytes a template may have.
const MAX_SOURCE: usize = 1 << 20;

/// One message of a chat.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Message {
    /// `system`, `user`, `assistant`.
    pub role: String,
    /// The text.
    pub content: String,
}

/// Why a chat was not rendered. The request is at fault, or the template; nothing else is.
#[derive(Debug, thiserror::Error)]
#[error("the chat template failed: {0}")]
pub struct TemplateError(String);

/// Where a template came from, as told to people at start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The model file.
    File,
    /// The operator.
    Given,
    /// Built in, because the file has none.
    BuiltIn(Family),
}

impl std::fmt::Display for Source {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::File => write!(out, "the model file's chat template"),
            Self::Given => write!(out, "the chat template given"),
            Self::BuiltIn(family) => write!(out, "the built-in chat template for {}", family.name()),
        }
    }
}

/// A compiled chat template.
#[derive(Debug)]
pub struct ChatTemplate {
    environment: Environment<'static>,
    source: Source,
    bos: String,
    eos: String,
}

const NAME: &str = "chat";

impl ChatTemplate {
    /// Chooses and compiles the template: `given`, else the file's, else the built-in one. `bos` and `eos` are the texts
    /// of the tokens templates refer to.
    ///
    /// # Errors
    /// [`TemplateError`] when it does not compile.
    pub fn choose(
        given: Option<&str>,
        file: Option<&str>,
        family: Family,
        bos: &str,
        eos: &str,
    ) -> Result<Self, TemplateError> {
        let (source, text) = match (given, file) {
            (Some(text), _) => (Source::Given, text),
            (None, Some(text)) => (Source::File, text),
            (None, None) => (Source::BuiltIn(family), built_in(family)),
        };
        if text.len() > MAX_SOURCE {
            return Err(TemplateError(format!(
                "it is {} bytes long, at most {MAX_SOURCE} are accepted",
                text.len()
            )));
        }
        let mut environment = Environment::new();
        environment.set_fuel(Some(FUEL));
        environment.set_recursion_limit(64);
        let mut syntax = SyntaxConfig::builder();
        syntax
            .trim_blocks(true)
            .lstrip_blocks(true)
            .keep_trailing_newline(true);
        environment.set_syntax(syntax.build().map_err(|fault| TemplateError(explain(&fault)))?);
        environment.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
        environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
        environment.add_function("raise_exception", |text: String| -> Result<Value, Error> {
            Err(Error::new(ErrorKind::InvalidOperation, text))
        });
        let compiled = environment.add_template_owned(NAME.to_owned(), text.to_owned());
        compiled.map_err(|fault| TemplateError(explain(&fault)))?;
        Ok(Self {
            environment,
            source,
            bos: bos.to_owned(),
            eos: eos.to_owned(),
        })
    }

    /// Where the template came from.
    #[must_use]
    pub fn source(&self) -> Source {
        self.source
    }

    /// Renders a chat up to where the assistant answers. The text may begin with the beginning-of-text token, so encode it
    /// with special tokens parsed.
    ///
    /// # Errors
    /// [`TemplateError`] when the template raises, loops, or gives too much.
    pub fn render(&self, messages: &[Message]) -> Result<String, TemplateError> {
        let template = self
            .environment
            .get_template(NAME)
            .map_err(|fault| TemplateError(explain(&fault)))?;
        let context = minijinja::context! {
            messages => Value::from(Serde(messages)),
            add_generation_prompt => true,
            bos_token => self.bos.as_str(),
            eos_token => self.eos.as_str(),
        };
        let mut out = Bounded(Vec::new());
        template
            .render_captured_to(context, &mut out)
            .map_err(|fault| TemplateError(explain(&fault)))?;
        String::from_utf8(out.0).map_err(|_| TemplateError("it gave bytes that are not UTF-8".to_owned()))
    }
}

/// The message of a fault and of what caused it, shortened: part of it is the template's own text.
fn explain(fault: &Error) -> String {
    let mut text = fault.to_string();
    let mut cause = std::error::Error::source(fault);
    while let Some(inner) = cause {
        text = format!("{text}: {inner}");
        cause = inner.source();
    }
    text.chars().take(300).collect()
}

/// A sink that refuses to grow without end.
struct Bounded(Vec<u8>);

impl std::io::Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if self.0.len() + bytes.len() > MAX_OUTPUT {
            return Err(std::io::Error::other(format!(
                "the text exceeds {MAX_OUTPUT} bytes"
            )));
        }
        self.0.extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn built_in(family: Family) -> &'static str {
    match family {
        Family::Gemma3 => GEMMA,
        Family::Llama => LLAMA,
        Family::Qwen2 | Family::Qwen3 => CHATML,
    }
}

/// Turns of user and model; a system text leads the first user turn.
const GEMMA: &str = "\
{%- set ns = namespace(system='') -%}
{%- for message in messages -%}
{%- if message.role == 'system' -%}
{%- set ns.system = ns.system ~ (message.content | trim) ~ '\\n\\n' -%}
{%- else -%}
{{- '<start_of_turn>' ~ ('model' if message.role == 'assistant' else 'user') ~ '\\n' -}}
{{- (ns.system if message.role != 'assistant' else '') ~ (message.content | trim) ~ '<end_of_turn>\\n' -}}
{%- if message.role != 'assistant' -%}{%- set ns.system = '' -%}{%- endif -%}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<start_of_turn>model\\n' -}}{%- endif -%}";

const LLAMA: &str = "\
{%- for message in messages -%}
{{- '<|start_header_id|>' ~ message.role ~ '<|end_header_id|>\\n\\n' ~ (message.content | trim) ~ '<|eot_id|>' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' -}}{%- endif -%}";

const CHATML: &str = "\
{%- for message in messages -%}
{{- '<|im_start|>' ~ message.role ~ '\\n' ~ message.content ~ '<|im_end|>\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}";

#[cfg(test)]
mod tests {
    use super::*;

    fn message(role: &str, content: &str) -> Message {
        Message {
            role: role.to_owned(),
            content: content.to_owned(),
        }
    }

    fn render(source: &str, messages: &[Message]) -> Result<String, TemplateError> {
        ChatTemplate::choose(Some(source), None, Family::Llama, "<s>", "</s>")?.render(messages)
    }

    #[test]
    fn built_in_templates_render_turns() {
        let chat = [
            message("system", "Be brief."),
            message("user", "Hi "),
            message("assistant", "Yes?"),
            message("user", "<b>"),
        ];
        let gemma = ChatTemplate::choose(None, None, Family::Gemma3, "", "").unwrap();
        assert_eq!(
            gemma.render(&chat).unwrap(),
            "<start_of_turn>user\nBe brief.\n\nHi<end_of_turn>\n<start_of_turn>model\nYes?<end_of_turn>\n<start_of_turn>user\n<b><end_of_turn>\n<start_of_turn>model\n"
        );
        assert_eq!(
            gemma.source().to_string(),
            "the built-in chat template for gemma3"
        );
        let qwen = ChatTemplate::choose(None, None, Family::Qwen3, "", "").unwrap();
        assert_eq!(
            qwen.render(&chat[3..]).unwrap(),
            "<|im_start|>user\n<b><|im_end|>\n<|im_start|>assistant\n"
        );
        let llama = ChatTemplate::choose(None, None, Family::Llama, "", "").unwrap();
        assert!(
            llama
                .render(&chat[..1])
                .unwrap()
                .starts_with("<|start_header_id|>system<|end_header_id|>\n\nBe brief.<|eot_id|>")
        );
    }

    #[test]
    fn the_operators_template_comes_before_the_files() {
        let chosen = |given, file| ChatTemplate::choose(given, file, Family::Llama, "", "").unwrap();
        assert_eq!(chosen(Some("a"), Some("b")).render(&[]).unwrap(), "a");
        assert_eq!(chosen(None, Some("b")).render(&[]).unwrap(), "b");
        assert_eq!(chosen(None, Some("b")).source(), Source::File);
    }

    #[test]
    fn what_chat_templates_commonly_use_works() {
        let source = "{{ bos_token }}{% for m in messages %}{% if loop.first and m['role'] == 'system' %}{% continue %}{% endif %}\
                      {{ m.content.strip().split('x')[0] | upper }}{{ m | tojson }}{% endfor %}";
        let found = render(source, &[message("system", "s"), message("user", " axb ")]).unwrap();
        assert_eq!(found, "<s>A{\"role\": \"user\", \"content\": \" axb \"}");
    }

    #[test]
    fn a_template_that_raises_is_an_error_with_its_words() {
        let found = render("{{ raise_exception('roles must alternate') }}", &[]).unwrap_err();
        assert!(found.to_string().contains("roles must alternate"), "{found}");
        assert!(render("{% for %}", &[]).is_err());
        assert!(render("{{ messages[3].content.nothing }}", &[]).is_err());
    }

    #[test]
    fn templates_that_loop_or_swell_are_stopped() {
        for source in [
            "{% for a in range(90000) %}{% for b in range(90000) %}x{% endfor %}{% endfor %}",
            "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
            "{% set long = 'x' * 1000000 %}{% for a in range(90) %}{{ long }}{% endfor %}",
            "{{ 'x' * 9000000000 }}",
        ] {
            assert!(render(source, &[]).is_err(), "{source}");
        }
        assert!(
            render(&" ".repeat(MAX_SOURCE + 1), &[])
                .unwrap_err()
                .to_string()
                .contains("bytes long")
        );
    }
}
