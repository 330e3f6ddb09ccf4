//! The engine contract with the mock and the scripted engine, and the tokenizer.
