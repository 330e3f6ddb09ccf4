//! `weir tokenize`: the ids of any bytes under a model's tokenizer.

use anyhow::{Context as _, Result, bail};
use clap::Args;
use serde_json::json;
use weir_model::tokenizer::{Encode, Tokenizer};

/// Arguments of `weir tokenize`.
#[derive(Debug, Args)]
pub(crate) struct TokenizeArgs {
    /// File, or name of a fetched model.
    #[arg(long)]
    model: String,
    /// Bytes in hexadecimal; they need not be UTF-8.
    #[arg(
        long,
        value_name = "HEX",
        conflicts_with = "text",
        required_unless_present = "text"
    )]
    text_hex: Option<String>,
    /// Text as it is.
    #[arg(long)]
    text: Option<String>,
    /// Add the beginning-of-text token where the model asks for it.
    #[arg(long)]
    bos: bool,
    /// Recognise control tokens written out in the text.
    #[arg(long)]
    special: bool,
    /// Print `{"ids": [...]}` instead of one id and its text a line.
    #[arg(long)]
    json: bool,
}

/// Runs `weir tokenize`.
///
/// # Errors
/// When the model cannot be read or the text is not hexadecimal.
#[expect(clippy::print_stdout, reason = "the command's output")]
pub(crate) fn run(args: TokenizeArgs) -> Result<()> {
    let input = match (&args.text_hex, &args.text) {
        (Some(hex), _) => from_hex(hex)?,
        (None, text) => text.clone().unwrap_or_default().into_bytes(),
    };
    let tokenizer = Tokenizer::from_gguf(&crate::model::open(&args.model)?)?;
    let ids = tokenizer.encode(
        &input,
        Encode {
            with_bos: args.bos,
            parse_special: args.special,
        },
    );
    if args.json {
        println!("{}", json!({ "ids": ids }));
        return Ok(());
    }
    for id in ids {
        let mut bytes = Vec::new();
        tokenizer.piece(id, true, &mut bytes);
        println!("{id}\t{}", bytes.escape_ascii());
    }
    Ok(())
}

fn from_hex(hex: &str) -> Result<Vec<u8>> {
    if !hex.len().is_multiple_of(2) {
        bail!("--text-hex has {} digits, an even number is needed", hex.len());
    }
    let digit = |character: u8| {
        char::from(character)
            .to_digit(16)
            .and_then(|digit| u8::try_from(digit).ok())
    };
    hex.as_bytes()
        .chunks_exact(2)
        .map(|pair| Some(digit(pair[0])? << 4 | digit(pair[1])?))
        .collect::<Option<_>>()
        .context("--text-hex holds something other than hexadecimal digits")
}
