//! Tokenizers on tiny vocabularies. The real vocabulary is checked string by string in the conformance run.

use weir_model::arch::Family;
use weir_model::tiny::TinyModel;
use weir_model::tokenizer::{Encode, TextStream, Tokenizer};

use crate::{format, opened};

const PLAIN: Encode = Encode {
    with_bos: false,
    parse_special: false,
};
const SPECIAL: Encode = Encode {
    with_bos: true,
    parse_special: true,
};

fn tokenizer(family: Family) -> Tokenizer {
    Tokenizer::from_gguf(&opened(&TinyModel::new(family, format("F32")))).unwrap()
}

#[test]
fn any_bytes_come_back_unchanged() {
    for family in [Family::Gemma3, Family::Qwen2, Family::Llama] {
        let tokenizer = tokenizer(family);
        let mut inputs: Vec<Vec<u8>> = (0..=255).map(|byte| vec![byte]).collect();
        inputs.push((0..=255).collect());
        for text in [
            "the theatre and  the\n\n\nend",
            "\u{1f600} \u{4f60}\u{597d} caf\u{e9}",
            " \r\n\t",
            "<bos><|im_end|>",
        ] {
            inputs.push(text.as_bytes().to_vec());
        }
        inputs.push(b"\xff\xf0\x9f\x98 ok \xe2\x82".to_vec());
        for input in inputs {
            let mut bytes = Vec::new();
            tokenizer
                .encode(&input, PLAIN)
                .iter()
                .for_each(|id| tokenizer.piece(*id, false, &mut bytes));
            assert_eq!(bytes, input, "{family:?}");
        }
    }
}

#[test]
fn sentence_pieces_merge_by_score() {
    let tokenizer = tokenizer(Family::Gemma3);
    let id = |text: &str| tokenizer.id_of(text).unwrap();
    // "he" scores best, then "the", then " the".
    assert_eq!(tokenizer.encode(b"x the", PLAIN), [id("x"), id("\u{2581}the")]);
    assert_eq!(
        tokenizer.encode("\u{4f60}\u{597d}".as_bytes(), PLAIN),
        [id("\u{4f60}\u{597d}")]
    );
    // User-defined tokens are cut out first, whatever is asked for.
    assert_eq!(
        tokenizer.encode(b"a   b", PLAIN),
        [id("a"), id("  "), id("\u{2581}"), id("b")]
    );
    assert_eq!(tokenizer.encode(b"\xff", PLAIN), [id("<0xFF>")]);
}

#[test]
fn pairs_merge_by_rank() {
    let tokenizer = tokenizer(Family::Qwen2);
    let pieces = |text: &str| -> Vec<String> {
        tokenizer
            .encode(text.as_bytes(), PLAIN)
            .iter()
            .map(|id| tokenizer.decode(&[*id]))
            .collect()
    };
    assert_eq!(pieces("x the other"), ["x", " the", " ", "o", "the", "r"]);
    assert_eq!(pieces("and   in"), ["and", "  ", " ", "in"]);
    assert_eq!(pieces("a12"), ["a", "1", "2"]);
}

#[test]
fn control_tokens_in_text_are_parsed_only_where_asked() {
    let gemma = tokenizer(Family::Gemma3);
    let turn = gemma.id_of("<end_of_turn>").unwrap();
    assert_eq!(
        gemma.encode(b"<end_of_turn>", SPECIAL),
        [gemma.bos().unwrap(), turn]
    );
    assert!(!gemma.encode(b"<end_of_turn>", PLAIN).contains(&turn));
    assert!(gemma.is_end(turn) && gemma.is_end(gemma.eos().unwrap()) && gemma.is_control(turn));
    let qwen = tokenizer(Family::Qwen3);
    let end = qwen.id_of("<|im_end|>").unwrap();
    assert_eq!(
        qwen.encode(b"<|im_end|>", SPECIAL),
        [end],
        "this file adds no beginning"
    );
    assert!(!qwen.encode(b"<|im_end|>", PLAIN).contains(&end));
    let (mut plain, mut special) = (Vec::new(), Vec::new());
    qwen.piece(end, false, &mut plain);
    qwen.piece(end, true, &mut special);
    assert_eq!((plain, special), (Vec::new(), b"<|im_end|>".to_vec()));
}

#[test]
fn streamed_text_equals_unstreamed_text() {
    for family in [Family::Gemma3, Family::Qwen2] {
        let tokenizer = tokenizer(family);
        for input in [
            "\u{1f600}\u{10ffff} caf\u{e9}".as_bytes(),
            b"\xf0\x9f\x98the\xff\xc3",
        ] {
            let ids = tokenizer.encode(input, PLAIN);
            let (mut stream, mut text, mut bytes) = (TextStream::new(), String::new(), Vec::new());
            for id in &ids {
                bytes.clear();
                tokenizer.piece(*id, false, &mut bytes);
                stream.push(&bytes, &mut text);
            }
            stream.finish(&mut text);
            assert_eq!(text, tokenizer.decode(&ids));
        }
    }
}
