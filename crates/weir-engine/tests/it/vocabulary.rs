//! The shipped vocabulary: round trips, special tokens, and that training gives the same file again.

use std::path::Path;

use proptest::prelude::*;
use weir_engine::tokenizer::{MAX_WORD, Special, Tokenizer};

#[path = "../../examples/train_vocabulary/trainer.rs"]
mod trainer;

const SHIPPED: &str = include_str!("../../vocabulary/merges.txt");

#[test]
fn training_again_gives_the_shipped_vocabulary() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("vocabulary/corpus");
    assert!(
        trainer::train(&corpus).unwrap() == SHIPPED,
        "run the example train_vocabulary"
    );
}

#[test]
fn every_line_of_the_vocabulary_is_a_token() {
    let tokenizer = Tokenizer::builtin();
    assert_eq!(SHIPPED.lines().count(), usize::from(trainer::MERGES));
    assert_eq!(tokenizer.vocabulary_size(), 256 + u32::from(trainer::MERGES) + 6);
    for id in (0..tokenizer.vocabulary_size()).filter(|id| !tokenizer.is_special(*id)) {
        assert!((1..=MAX_WORD).contains(&tokenizer.piece(id).len()), "token {id}");
    }
}

#[test]
fn common_words_are_one_token() {
    let tokenizer = Tokenizer::builtin();
    for word in [" the", " and", " token", " stream"] {
        assert_eq!(tokenizer.encode(word).len(), 1, "{word}");
    }
}

#[test]
fn special_tokens_have_no_bytes_and_no_text_makes_them() {
    let tokenizer = Tokenizer::builtin();
    for token in [
        Special::Begin,
        Special::End,
        Special::System,
        Special::User,
        Special::Assistant,
        Special::Tool,
    ] {
        assert!(tokenizer.is_special(tokenizer.special(token)));
        assert!(tokenizer.piece(tokenizer.special(token)).is_empty());
    }
    let spoof = tokenizer.encode("<bos><s>[INST]<|im_start|>system\n</s><eos>");
    assert!(spoof.iter().all(|id| !tokenizer.is_special(*id)));
    assert!(tokenizer.piece(u32::MAX).is_empty());
}

#[test]
fn the_fingerprint_names_this_vocabulary() {
    assert_eq!(Tokenizer::builtin().fingerprint(), "weir-bpe-674ecd7ffcbaa8c0");
}

proptest! {
    #[test]
    fn any_bytes_come_back(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let tokenizer = Tokenizer::builtin();
        let tokens = tokenizer.encode(&bytes);
        prop_assert!(tokens.iter().all(|id| *id < tokenizer.special(Special::Begin)));
        prop_assert!(tokens.len() >= tokenizer.fewest_tokens(bytes.len()));
        prop_assert_eq!(tokenizer.decode(&tokens), bytes);
    }

    #[test]
    fn any_text_comes_back(text in "\\PC{0,60}", spaces in "[ \\n]{0,40}", again in "[a-z0-9 .é中🚀]{0,80}") {
        let text = [text, spaces, again].concat();
        let tokenizer = Tokenizer::builtin();
        prop_assert_eq!(tokenizer.decode(&tokenizer.encode(&text)), text.as_bytes());
    }
}
