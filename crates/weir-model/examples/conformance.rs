//! Checks the real model against the reference made with llama.cpp.
//!
//! `cargo run --release -p weir-model --example conformance -- PATH_TO_GGUF`. Fails when the file is missing.
fn main() {
    let path = std::env::args().nth(1).expect("path");
    let t = std::time::Instant::now();
    let g = weir_model::gguf::Gguf::open(path.as_ref()).unwrap();
    println!("open {:?}", t.elapsed());
    let tk = weir_model::tokenizer::Tokenizer::from_gguf(&g).unwrap();
    println!("tokenizer {:?} ends {:?}", t.elapsed(), tk.ends());
    let fixture: serde_json::Value = serde_json::from_str(include_str!("../tests/fixtures/gemma3-270m-reference.json")).unwrap();
    let mut bad = 0; let mut n = 0;
    for case in fixture["tokenize"].as_array().unwrap() {
        let hex = case["hex"].as_str().unwrap();
        let bytes: Vec<u8> = (0..hex.len()/2).map(|i| u8::from_str_radix(&hex[2*i..2*i+2],16).unwrap()).collect();
        for b in 0..2 { for s in 0..2 {
            let want: Vec<u32> = case[format!("bos{b}_special{s}")].as_array().unwrap().iter().map(|v| v.as_u64().unwrap() as u32).collect();
            let got = tk.encode(&bytes, weir_model::tokenizer::Encode { with_bos: b==1, parse_special: s==1 });
            n += 1;
            if got != want { bad += 1; println!("{case:?}\n got {got:?}\nwant {want:?}"); }
        }}
    }
    for (id, p) in fixture["pieces"].as_object().unwrap() {
        let id: u32 = id.parse().unwrap();
        for (special, key) in [(false, "plain"), (true, "special")] {
            let mut out = Vec::new(); tk.piece(id, special, &mut out);
            let hex: String = out.iter().map(|b| format!("{b:02x}")).collect();
            n += 1;
            if hex != p[key].as_str().unwrap() { bad += 1; println!("piece {id} {key} {hex} {p}"); }
        }
        if tk.is_end(id) != p["eog"].as_bool().unwrap() { bad+=1; println!("eog {id}"); }
        if tk.is_control(id) != p["control"].as_bool().unwrap() { bad+=1; println!("control {id}"); }
    }
    println!("{bad} bad of {n}");
}
