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
    forced();
}

#[allow(unused)]
fn forced() {
    use std::sync::Arc; use weir_model::*;
    let path = std::env::args().nth(1).expect("path");
    let g = Arc::new(weir_model::gguf::Gguf::open(path.as_ref()).unwrap());
    let th = Threads::new(std::env::args().nth(2).map_or(1, |v| v.parse().unwrap())).unwrap();
    let t = std::time::Instant::now();
    let arch = arch::Arch::from_gguf(&g).unwrap();
    let mut st = Stage::load(&g, StageSpec::whole(arch.layers), &th).unwrap();
    println!("load {:?} {}", t.elapsed(), st.loaded_bytes());
    let fixture: serde_json::Value = serde_json::from_str(include_str!("../tests/fixtures/gemma3-270m-reference.json")).unwrap();
    let mut seq = 0;
    for set in ["completions", "chats", "long"] { for c in fixture[set].as_array().unwrap() {
        let ids = |k: &str| -> Vec<u32> { c[k].as_array().unwrap().iter().map(|v| v.as_u64().unwrap() as u32).collect() };
        let (p, o) = (ids("prompt_ids"), ids("output_ids"));
        seq += 1;
        st.open(seq, 2048).unwrap();
        let t = std::time::Instant::now();
        let mut h = st.embed(&p).unwrap();
        let rows: Vec<Row> = (0..p.len()).map(|i| Row { sequence: seq, position: i }).collect();
        st.forward(&rows, &mut h).unwrap();
        let pre = t.elapsed();
        let mut logits = Vec::new();
        let d = st.arch().width;
        let mut h = h[h.len()-d..].to_vec();
        let (mut sum, mut n, mut max, mut agree) = (0.0f64, 0, 0.0f64, 0);
        let t = std::time::Instant::now();
        for (i, &id) in o.iter().enumerate() {
            st.head(&h, &mut logits).unwrap();
            let top = c["steps"][i]["top"].as_array().unwrap();
            for e in top { let l = logits[e[0].as_u64().unwrap() as usize] as f64; let df = (l - e[1].as_f64().unwrap()).abs(); sum += df; n += 1; if df > max { max = df } }
            let best = (0..logits.len()).max_by(|a,b| logits[*a].total_cmp(&logits[*b])).unwrap();
            if best as u64 == top[0][0].as_u64().unwrap() { agree += 1 } 
            h = st.embed(&[id]).unwrap();
            st.forward(&[Row { sequence: seq, position: p.len() + i }], &mut h).unwrap();
        }
        let dec = t.elapsed();
        println!("{} mean {:.3} max {:.3} top1 {}/{}  prefill {:.1} tok/s decode {:.1} tok/s", c["name"], sum / n as f64, max, agree, o.len(), p.len() as f64 / pre.as_secs_f64(), o.len() as f64 / dec.as_secs_f64());
        st.close(seq);
    }}
}
